"""Texts of the voice's corpus: one JSON line each, with id, text and phonemes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from speech_assets.errors import CorpusError


@dataclass(frozen=True, slots=True)
class VoiceText:
    """One text with its phonemes; `split` is train, or harvard or held for those kept out of it."""

    id: int
    split: str
    text: str
    phonemes: str


def read_texts(path: Path) -> dict[int, VoiceText]:
    """Texts by id, from a ``.jsonl`` or ``.jsonl.xz`` file.

    Raises:
        CorpusError: the file is missing, damaged or not of this form.
    """
    opener = lzma.open if path.suffix == ".xz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        texts = {r["id"]: VoiceText(r["id"], r["split"], r["text"], r["ph"]) for r in rows}
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"{path}: not texts of the voice ({type(error).__name__}: {error}); make them with "
            "python -m speech_assets.work.voice_texts"
        ) from error
    if len(texts) != len(rows):
        raise CorpusError(f"{path}: {len(rows) - len(texts)} ids are there twice; make it again")
    return texts


def write_texts(path: Path, texts: Iterable[VoiceText]) -> None:
    """Write `texts` to a ``.jsonl.xz`` file; the same texts give the same bytes."""
    temporary = path.with_name(f".{path.name}.part")
    with lzma.open(temporary, "wt", preset=9, encoding="utf-8", newline="\n") as file:
        for t in texts:
            row = {"id": t.id, "split": t.split, "text": t.text, "ph": t.phonemes}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    temporary.replace(path)
