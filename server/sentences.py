"""Cutting text into sentences while it is still coming in.

A boundary is known only once the character after it has come: "3." may go on as "3.5". So the cuts
do not depend on how the text was chopped on its way. Nothing is changed but white space between
pieces, which is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from server.protocol import Granularity

LONGEST_PIECE = 250  # About 15 s of speech; beyond, voices drift and mistakes add up.

_CLOSING = "\"'\u201d\u2019)\\]}\u00bb"
# A Latin full stop ends a sentence only before white space; those of other scripts always do.
_SENTENCE = rf"[.!?\u2026]+[{_CLOSING}]*(?=\s)|[\u3002\uff01\uff1f\u0964\u0965\u061f]|\n[^\S\n]*\n"
_CLAUSE = rf"{_SENTENCE}|[,;:\u2014][{_CLOSING}]*(?=\s)|[\uff0c\uff1b\u060c]"
_ENDS: dict[Granularity, re.Pattern[str]] = {
    "sentence": re.compile(_SENTENCE),
    "clause": re.compile(_CLAUSE),
}
_ABBREVIATIONS = frozenset(
    {
        *("mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "mt", "rev", "hon", "gen", "col"),
        *("capt", "lt", "sgt", "vs", "approx", "dept", "est", "vol", "inc", "ltd", "corp"),
        *("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"),
        *("e.g", "i.e", "a.m", "p.m", "u.s", "u.k"),
    }
)
_LAST_WORD = re.compile(r"(\S+)\.\Z")
_INITIAL = re.compile(r"[^\W\d_]")


@dataclass(slots=True)
class SentenceCutter:
    """Text in, whole sentences (or clauses) out; with granularity none, all of it at the end."""

    granularity: Granularity
    _text: str = field(default="", init=False)

    @property
    def waiting(self) -> int:
        """Characters that have come and were not given out yet."""
        return len(self._text)

    def feed(self, text: str) -> list[str]:
        """The pieces that `text` completes, in order."""
        self._text = (self._text + text).lstrip()
        pieces: list[str] = []
        while (end := self._end()) is not None:
            piece, self._text = self._text[:end].strip(), self._text[end:].lstrip()
            if piece:
                pieces.append(piece)
        return pieces

    def flush(self) -> str:
        """What is left, now that no more text comes; "" if nothing is."""
        rest, self._text = self._text.strip(), ""
        return rest

    def _end(self) -> int | None:
        """Where the first piece of the text ends, if that is known already."""
        if self.granularity == "none":
            return None
        for match in _ENDS[self.granularity].finditer(self._text):
            if match.end() > LONGEST_PIECE:
                break
            if self._is_end(match):
                return match.end()
        if len(self._text) <= LONGEST_PIECE:
            return None
        spaces = [m.start() for m in re.finditer(r"\s", self._text[: LONGEST_PIECE + 1])]
        return spaces[-1] if spaces and spaces[-1] > 0 else LONGEST_PIECE

    def _is_end(self, match: re.Match[str]) -> bool:
        before = self._text[: match.end()]
        # A tag such as <laugh> is one thing, and marks alone ("...") are spoken with what follows.
        if before.rfind("<") > before.rfind(">") or not re.search(r"\w", before):
            return False
        if match.group() != "." or not (word := _LAST_WORD.search(before)):
            return True
        last = word[1].lstrip("(\"'\u201c\u2018").casefold()
        return last not in _ABBREVIATIONS and not _INITIAL.fullmatch(last)
