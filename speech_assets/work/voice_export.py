"""Write a trained voice as it ships, or as others load it, each with its model card.

--lm: what `voice_lm` wrote, or a checkpoint of transformers with a ``layout.json``. Packed (its
default) means int8 weights, which the server expands at first use; plain means one
``model.safetensors`` (float16, every id a row), which transformers and vLLM load as it is.
--codec: a folder of `SNAC.from_pretrained`. Plain (its default) means as it is; packed means its
decoder in int8, with encoder and quantizers in float16, so that codes stay the same. Runs on a CPU
in seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from server.codec import load_codec, read_identity
from server.files import write_json
from server.packed import plain_folder
from speech_assets.errors import ConfigError
from speech_assets.voice.card import CARD, FIGURES, codec_card, lm_card
from speech_assets.voice.export import expand_rows
from speech_assets.voice.layout import LAYOUT_FILE, read_layout
from speech_assets.voice.packed import pack
from speech_assets.work import worker
from speech_assets.work.voice_samples import lm_name, load_lm

CODEC_WEIGHTS = "pytorch_model.bin"
CODEC_KEPT = ("encoder.", "quantizer.")


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_export`."""
    worker.run(export, argument_parser())


def argument_parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("voice_export", __doc__ or "")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--lm", type=Path, metavar="DIR")
    given.add_argument("--codec", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--form", choices=("packed", "plain", "card"), help="card: that alone")
    parser.add_argument("--text-facts", type=Path, metavar="FILE", help="texts.json of its corpus")
    return parser


def export(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Export what the command line names.

    Raises:
        ConfigError: files of the folder are missing or do not belong together.
    """
    out: Path = arguments.out
    form = arguments.form or ("packed" if arguments.lm else "plain")
    texts = _read(arguments.text_facts) if arguments.text_facts else None
    folder: Path = arguments.lm or arguments.codec
    training = _read(folder / FIGURES) if (folder / FIGURES).exists() else None
    model = _read(folder / "config.json")
    try:
        if arguments.lm:
            name = lm_name(folder, load_lm(folder, torch.device("cpu"))[0])
            card = lm_card(name, model, _read(folder / LAYOUT_FILE), training, texts)
        else:
            name = read_identity(plain_folder(folder)).name
            card = codec_card(name, model, live_codes(folder), training, texts)
    except (KeyError, IndexError) as error:
        raise ConfigError(
            f"{folder}: {FIGURES} or another file of it has no {error}: they are not of one "
            "training; take all from one"
        ) from error
    if form != "card" and arguments.lm:
        write_lm(folder, out, plain=form == "plain")
    elif form != "card":
        write_codec(folder, out, packed=form == "packed")
    out.mkdir(parents=True, exist_ok=True)
    if training is not None:
        write_json(out / FIGURES, training)
    (out / CARD).write_text(card, "utf-8")
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    reporter.result("exported", name=name, megabytes=size / 1e6)


def write_lm(lm: Path, out: Path, *, plain: bool = False) -> None:
    """Write the language model of the folder `lm` to `out`, weights last.

    Raises:
        ConfigError: weights, layout and config of `lm` do not belong together.
    """
    layout = read_layout(lm)
    config = _read(lm / "config.json")
    if config["vocab_size"] != layout.vocab_size:
        raise ConfigError(
            f"{lm}: config.json has a vocabulary of {config['vocab_size']}, "
            f"{LAYOUT_FILE} of {layout.vocab_size}; take both from one training"
        )
    said = _read(lm / LAYOUT_FILE)
    compact = lm / "compact.safetensors"
    try:
        state = (
            expand_rows(load_file(compact), layout)
            if compact.exists()
            else load_file(lm / "model.safetensors")
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{lm}: {error}") from error
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


def write_codec(codec: Path, out: Path, *, packed: bool = False) -> None:
    """Write the codec of the folder `codec` to `out`, weights last.

    Raises:
        ConfigError: the folder is not one of `SNAC.from_pretrained`.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(codec / "config.json", out / "config.json")
        if packed:
            path = codec / CODEC_WEIGHTS
            state = torch.load(path, map_location="cpu", weights_only=True)
            _pack(out, state, keep=CODEC_KEPT)
            return
        temporary = out / f".{CODEC_WEIGHTS}.part"
        shutil.copyfile(codec / CODEC_WEIGHTS, temporary)
        temporary.replace(out / CODEC_WEIGHTS)
    except OSError as error:
        raise ConfigError(f"{codec}: not a folder of SNAC.from_pretrained ({error})") from error


def _pack(out: Path, state: dict[str, Tensor], *, keep: tuple[str, ...] = ()) -> None:
    try:
        pack(out, {name: tensor.numpy() for name, tensor in state.items()}, keep=keep)
    except ValueError as error:
        raise ConfigError(f"{out}: {error}") from error


def live_codes(codec: Path) -> int:
    """Codes of a codebook that are not zero, the most of the three, in the codec's folder."""
    quantizers: Any = load_codec(plain_folder(codec)).model.quantizer.quantizers
    books = [quantizer.codebook.weight for quantizer in quantizers]
    return max(int((book.abs().sum(1) > 0).sum()) for book in books)


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not readable as JSON ({error})") from error


if __name__ == "__main__":
    main()
