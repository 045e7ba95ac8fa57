"""Write a trained voice as it ships, or as others load it.

    python -m speech_assets.work.voice_export --lm DIR --out DIR [--plain]
    python -m speech_assets.work.voice_export --codec DIR --out DIR

--lm: what `voice_lm` wrote (``compact.safetensors``, ``config.json``, ``layout.json``), or a
checkpoint of transformers with a ``layout.json``. --out gets ``config.json``, ``layout.json``,
``generation_config.json`` and int8 weights, which the server expands at first use; with --plain
``model.safetensors`` (float16, every id a row), which transformers and vLLM load as it is.

--codec: a folder of `SNAC.from_pretrained`. --out gets its decoder in int8; encoder and quantizers
stay float16, so that codes are the same. Runs on a CPU in seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from speech_assets.voice.export import EMBEDDING, expand_rows
from speech_assets.voice.layout import LAYOUT_FILE, read_layout
from speech_assets.voice.packed import pack
from speech_assets.work.voice_codec import say, write_json

CODEC_KEPT = ("encoder.", "quantizer.")


def main(argv: list[str] | None = None) -> int:
    """Export what the command line names; 0 when written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--lm", type=Path, metavar="DIR")
    given.add_argument("--codec", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--plain", action="store_true", help="float16 weights, not packed")
    args = parser.parse_args(argv)
    if args.lm:
        export(args.lm, args.out, plain=args.plain)
    elif args.plain:
        parser.error("--plain is for --lm; a codec's folder is plain already")
    else:
        export_codec(args.codec, args.out)
    return 0


def export(lm: Path, out: Path, *, plain: bool = False) -> None:
    """Write the checkpoint of the folder `lm` to `out`, weights last.

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
    compact = lm / "compact.safetensors"
    state = (
        expand_rows(load_file(compact), layout)
        if compact.exists()
        else load_file(lm / "model.safetensors")
    )
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", config)
    shutil.copyfile(lm / LAYOUT_FILE, out / LAYOUT_FILE)
    generation = {
        "bos_token_id": layout.begin,
        "eos_token_id": layout.end_of_speech,
        "pad_token_id": layout.pad,
        "do_sample": True,
        **said["sampling"],
    }
    write_json(out / "generation_config.json", generation)
    if not plain:
        _pack(out, state)
        return
    temporary = out / "model.part"
    save_file(state, temporary, metadata={"format": "pt"})
    temporary.replace(out / "model.safetensors")
    size = (out / "model.safetensors").stat().st_size / 1e6
    say(f"{out}: {len(state[EMBEDDING])} ids, {size:.1f} MB")


def export_codec(codec: Path, out: Path) -> None:
    """Write the codec of the folder `codec` to `out` with its decoder in int8."""
    state = torch.load(codec / "pytorch_model.bin", map_location="cpu", weights_only=True)
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(codec / "config.json", out / "config.json")
    _pack(out, state, keep=CODEC_KEPT)


def _pack(out: Path, state: dict[str, Tensor], *, keep: tuple[str, ...] = ()) -> None:
    packing = pack(out, {name: tensor.numpy() for name, tensor in state.items()}, keep=keep)
    worst = min(packing.snr_db, key=lambda name: packing.snr_db[name])
    say(
        f"{out}: {packing.bytes / 1e6:.1f} MB in all; the matrix that int8 keeps least, {worst}, "
        f"has {packing.snr_db[worst]:.1f} dB"
    )


if __name__ == "__main__":
    sys.exit(main())
