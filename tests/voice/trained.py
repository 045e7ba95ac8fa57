"""A codec and a language model that were really trained, for a few steps on a CPU, on noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from speech_assets.voice.packs import Utterance, write_pack
from speech_assets.work import voice_codec, voice_lm
from speech_assets.work.worker import Reporter

CODEC_OPTIONS = (
    "--device cpu --encoder-dim 4 --decoder-dim 32 --live-codes 32 --batch 2 --crop-samples 4096 "
    "--judged-samples 2048 --minutes 9 --quantize-step 1 --steps 2"
)
LM_OPTIONS = (
    "--device cpu --live-codes 32 --minutes 9 --hidden 64 --layers 1 --heads 1 --kv-heads 1 "
    "--feed-forward 64 --variants 2 --batch-tokens 256 --steps 2"
)
IDS = (0, 2, 100, 101)


def write_corpus(folder: Path) -> tuple[Path, Path]:
    """Packs of two held-out utterances and two to train on, and their texts."""
    rng = np.random.default_rng(0)
    clips = [
        Utterance(n, "heart", (3_000 * rng.standard_normal(12_000)).astype(np.int16)) for n in IDS
    ]
    write_pack(folder / "packs", clips)
    rows = [{"id": n, "split": "train", "text": "A cat.", "ph": "ə kæt."} for n in IDS]
    texts = folder / "text.jsonl"
    texts.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return folder / "packs", texts


def train(folder: Path) -> tuple[Path, Path]:
    """Folders of the codec and of the language model, as training leaves them."""
    packs, texts = write_corpus(folder)
    codec, lm = folder / "codec", folder / "lm"
    run(voice_codec, f"--packs heart={packs} --out {codec} {CODEC_OPTIONS}")
    line = f"--packs heart={packs} --texts {texts} --codec {codec} --out {lm} {LM_OPTIONS}"
    run(voice_lm, line)
    return codec, lm


def run(command: Any, line: str) -> None:
    """Train with the command's own arguments, in this process."""
    command.train(command.argument_parser().parse_args(line.split()), Reporter("test"))
