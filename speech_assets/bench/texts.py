"""The texts of a load test, from a file of the user's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from speech_assets.bench.errors import BenchError

if TYPE_CHECKING:
    from pathlib import Path


def read_texts(path: Path) -> tuple[str, ...]:
    """Texts of a file: one a line, or JSON lines with `text` (`.jsonl`). Blank lines are skipped.

    Raises:
        BenchError: it cannot be read, or has no text.
    """
    try:
        # Not `splitlines`: it also splits at characters that may stand within a text (U+2028).
        content = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise BenchError(f"--texts {path} is not UTF-8 ({error}); save it as UTF-8") from error
    except (OSError, ValueError) as error:
        raise BenchError(f"--texts {path}: {error}") from error
    if "\0" in content:
        raise BenchError(f"--texts {path} is no text, or UTF-16 or the like; save it as UTF-8")
    texts: list[str] = []
    for number, line in enumerate(content.split("\n"), 1):
        if not (line := line.strip()):
            continue
        if path.suffix == ".jsonl":
            line = _text_of(line, f"--texts {path}, line {number}")
        texts.append(line)
    if not texts:
        raise BenchError(f"--texts {path} has no text; write one a line")
    return tuple(texts)


def _text_of(line: str, place: str) -> str:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise BenchError(f"{place} is not JSON: {error}") from error
    except RecursionError as error:
        raise BenchError(f'{place} nests too deep; write {{"text": "..."}}') from error
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise BenchError(f'{place} has no "text"')
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BenchError(f"{place} has half a character ({error}); write it whole") from error
    return text
