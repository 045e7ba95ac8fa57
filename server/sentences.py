"""Cutting text into sentences while it is still coming in.

A boundary is known only once the character after it has come: "3." may go on as "3.5". So the cuts
do not depend on how the text was chopped on its way. Nothing is changed but white space between
pieces, which is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from server.abbreviations import ABBREVIATIONS, ends_sentence
from server.markup import without_tags

Granularity = Literal["none", "sentence", "clause"]
LONGEST_PIECE = 250  # About 15 s of speech; beyond, voices drift and mistakes add up.

_CLOSING = "\"'\u201d\u2019)\\]}\u00bb"
# A Latin full stop ends a sentence only before white space; those of other scripts always do.
# A run of marks is looked at once, from its first: a text of nothing else would take for ever.
_SENTENCE = (
    rf"(?<![.!?\u2026])[.!?\u2026]++[{_CLOSING}]*+(?=\s)"
    r"|[\u3002\uff01\uff1f\u0964\u0965\u061f]|\n[^\S\n]*+\n"
)
_CLAUSE = rf"{_SENTENCE}|[,;:\u2014][{_CLOSING}]*+(?=\s)|[\uff0c\uff1b\u060c]"
_ENDS: dict[Granularity, re.Pattern[str]] = {
    "sentence": re.compile(_SENTENCE),
    "clause": re.compile(_CLAUSE),
}
_BEFORE_NUMBERS = frozenset({"no", "p", "fig", "ch", "sec"})  # "No. 5"; "No. Not now" ends.
_LAST_WORD = re.compile(r"(\S+)\.\Z")
# "a < 5" begins none, and what a CDATA section holds is text.
_TAG_START = re.compile(r"<\s*/?\s*(?:(?!!\[CDATA\[)[A-Za-z!?]|\Z)")
_INITIAL = re.compile(r"[^\W\d_]")
_BLANK_LINE = re.compile(r"[^\S\n]*+\n[^\S\n]*+\n")
_SPACE = re.compile(r"\s*")


@dataclass(slots=True)
class SentenceCutter:
    """Text in, whole sentences (or clauses) out; with granularity none, all of it at the end.

    Each is cut when it is asked for: a long text costs its taker no more at once than a short one.
    """

    granularity: Granularity
    longest: int = LONGEST_PIECE
    _text: str = field(default="", init=False)
    _at: int = field(default=0, init=False)  # What lies before in `_text` has been given out.

    @property
    def waiting(self) -> int:
        """Characters that have come and were not given out yet."""
        return len(self._text) - self._at

    @property
    def has_piece(self) -> bool:
        """Whether `next` would give one."""
        return self._end() is not None

    def add(self, text: str) -> None:
        """Take text that goes on where the last ended."""
        self._text, self._at = self._text[self._at :] + text, 0
        self._skip_space()

    def next(self) -> str | None:
        """The next piece whose end is certain; None without one."""
        if (end := self._end()) is None:
            return None
        piece, self._at = self._text[self._at : end].strip(), end
        self._skip_space()
        return piece

    def feed(self, text: str) -> list[str]:
        """The pieces that `text` completes, in order."""
        self.add(text)
        return list(iter(self.next, None))

    def flush(self) -> str:
        """What is left, now that no more text comes; "" if nothing is."""
        rest = self._text[self._at :].strip()
        self._text, self._at = "", 0
        return rest

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None  # It may be empty.
        self._at = space.end()

    def _end(self) -> int | None:
        """Where in the text the next piece ends, if that is known already."""
        if self.granularity == "none":
            return None
        # No piece is longer, and one more character tells whether a mark ends it.
        head = self._text[self._at : self._at + self.longest + 1]
        for match in _ENDS[self.granularity].finditer(head):
            if match.end() > self.longest:
                break
            is_end = _is_end(head[: match.end()], match.group(), head[match.end() :])
            if is_end is None and len(head) <= self.longest:
                return None
            if is_end is not False:
                return self._at + match.end()
        return self._at + self._forced_end(head) if len(head) > self.longest else None

    def _forced_end(self, head: str) -> int:
        """Where to cut a text without an end: at its last clause or space, and in no tag."""
        clauses = [
            match.end()
            for match in _ENDS["clause"].finditer(head)
            if match.end() <= self.longest and _may_end(head[: match.end()])
        ]
        if clauses and clauses[-1] >= self.longest // 2:
            return clauses[-1]
        spaces = [m.start() for m in re.finditer(r"\s", head) if not _in_tag(head[: m.start()])]
        return spaces[-1] if spaces and spaces[-1] > 0 else self.longest


def _is_end(before: str, mark: str, after: str) -> bool | None:
    """Whether a piece ends with `before`, the last of which is `mark`; None while what comes next
    would tell."""
    if not _may_end(before):
        return False
    if mark != "." or not (word := _LAST_WORD.search(without_tags(before))):
        return True
    last = word[1].lstrip("(\"'\u201c\u2018").casefold()
    if _BLANK_LINE.match(after):
        return True
    after = after.lstrip()
    if last in _BEFORE_NUMBERS:
        return not after[0].isdigit() if after else None
    if last in ABBREVIATIONS:
        return ends_sentence(last, after, is_all=False)
    return not _INITIAL.fullmatch(last)


def _may_end(text: str) -> bool:
    """Whether a piece may be `text`, as far as tags and marks go.

    A tag such as <laugh> is one thing, and tags and marks alone ("...") are spoken with what
    follows.
    """
    return not _in_tag(text) and re.search(r"\w", without_tags(text)) is not None


def _in_tag(text: str) -> bool:
    """Whether `text` ends within a tag."""
    opened = text.rfind("<")
    return opened > text.rfind(">") and _TAG_START.match(text, opened) is not None
