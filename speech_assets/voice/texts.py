"""Texts of the voice's corpus: one JSON line each, with id, text and phonemes."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class VoiceText:
    """One text with its phonemes; `split` is harvard or held for those kept out of training."""

    id: int
    split: str
    text: str
    phonemes: str


def read_texts(path: Path) -> dict[int, VoiceText]:
    """Texts by id, from a ``.jsonl`` or ``.jsonl.xz`` file."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {r["id"]: VoiceText(r["id"], r["split"], r["text"], r["ph"]) for r in rows}
