"""Write a trained language model as a checkpoint that transformers and vLLM load.

    python -m speech_assets.work.voice_export --lm DIR --out DIR

Reads what `voice_lm` wrote (``compact.safetensors``, ``config.json``, ``layout.json``) and writes
``model.safetensors`` (every id a row), ``config.json``, ``generation_config.json`` and
``layout.json`` to --out. Runs on a CPU in seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from speech_assets.voice.export import EMBEDDING, expand_rows
from speech_assets.voice.layout import LAYOUT_FILE, read_layout
from speech_assets.work.voice_codec import say, write_json


def main(argv: list[str] | None = None) -> int:
    """Export what the command line names; 0 when written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    export(args.lm, args.out)
    return 0


def export(lm: Path, out: Path) -> None:
    """Write the checkpoint of the training folder `lm` to `out`, weights last.

    Raises:
        ValueError: weights, layout and config of `lm` do not belong together.
    """
    layout = read_layout(lm)
    config = json.loads((lm / "config.json").read_text("utf-8"))
    if config["vocab_size"] != layout.vocab_size:
        raise ValueError(
            f"{lm}: config.json has a vocabulary of {config['vocab_size']}, "
            f"{LAYOUT_FILE} of {layout.vocab_size}"
        )
    said = json.loads((lm / LAYOUT_FILE).read_text("utf-8"))
    state = expand_rows(load_file(lm / "compact.safetensors"), layout)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", config)
    layout.write(out, sampling=said["sampling"])
    generation = {
        "bos_token_id": layout.begin,
        "eos_token_id": layout.end_of_speech,
        "pad_token_id": layout.pad,
        "do_sample": True,
        **said["sampling"],
    }
    write_json(out / "generation_config.json", generation)
    temporary = out / "model.part"
    save_file(state, temporary, metadata={"format": "pt"})
    temporary.replace(out / "model.safetensors")
    size = (out / "model.safetensors").stat().st_size / 1e6
    say(f"{out}: {len(state[EMBEDDING])} ids, {size:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
