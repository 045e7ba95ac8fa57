"""A text of any length in pieces that a model can speak whole, and the pauses between them.

Cut at the ends of sentences; a sentence that is too long at the ends of its clauses, and a clause
at spaces. Sentences that fit together stay together: voices place pauses better than any rule, and
each piece costs its lead-in. Paragraphs and asked-for pauses part pieces in any case. Every word is
in one piece, in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from server.markup import LONGEST_PAUSE_MS, PAUSE
from server.sentences import LONGEST_PIECE, SentenceCutter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Silence between pieces, sound to sound. The embedded voice pauses so within one utterance: 290 to
# 520 ms, median 415, between two sentences (10 pairs of held-out sentences, below -45 dBFS), 80 to
# 360 ms at commas. A paragraph is longer than a sentence by as much as readers make it; a cut
# within a clause should not be heard as one.
SENTENCE_PAUSE_S = 0.40
CLAUSE_PAUSE_S = 0.25
PARAGRAPH_PAUSE_S = 0.70
WORD_PAUSE_S = 0.06

# What a character of these kinds is spoken as, in letters: "7" may be "seventy", "$" "dollars".
_DIGIT_LETTERS = 7
_SIGN_LETTERS = 8
_SIGNS = frozenset("$€£¥%&@+=/#°<>")

# Letters up to which sentences stay together: two or so, as in a fifth of what the embedded voice
# was trained on. With 250, four or five of them, it went on with words that no text had.
TOGETHER = 120
_LONGEST_SENTENCE = 1_000  # Characters read at a time: a list without a full stop is no sentence.
_SLICE = 2_000
_CLAUSE_END = re.compile(
    r"(?<=[,;:\u2014\u2013)\u3001\uff0c\uff1b\u060c])\s+|\s+(?=[(\u2014\u2013])"
)


def spoken_characters(text: str) -> int:
    """Letters that `text` is spoken as, rather more than fewer; guards expect its length by it."""
    return sum(_DIGIT_LETTERS if c.isdigit() else _SIGN_LETTERS if c in _SIGNS else 1 for c in text)


@dataclass(frozen=True, slots=True)
class Piece:
    """Words to speak at once, and the silence between them and the next piece's."""

    text: str
    pause_s: float


def pieces(plain: str, read: Callable[[str], str], longest: int = LONGEST_PIECE) -> Iterator[Piece]:
    """Pieces of a text without markup (see `markup.plain_text`), each as it is needed.

    Args:
        plain: paragraphs with a blank line between, and pauses.
        read: puts the written forms of a sentence into words.
        longest: letters of a piece, counted by `spoken_characters`.
    """
    held: Piece | None = None
    is_closed = False  # The pause after `held` parts it from what follows.
    for sentence, pause_s in _sentences(plain):
        for part in _fitting(read(sentence), longest):
            if not any(map(str.isalnum, part.text)):
                continue
            if held is not None and not is_closed:
                joined = f"{held.text} {part.text}"
                if spoken_characters(joined) <= min(longest, TOGETHER):
                    held = replace(part, text=joined)
                    continue
            if held is not None:
                yield held
            held, is_closed = part, False
        if held is not None and pause_s is not None:
            held = replace(held, pause_s=max(pause_s, held.pause_s if is_closed else 0.0))
            is_closed = True
    if held is not None:
        yield held


def halves(piece: Piece) -> list[Piece]:
    """The piece in two or more, as even as its clauses allow; itself when it is one letter."""
    most = max(1, (spoken_characters(piece.text) + 1) // 2)
    parts = list(_fitting(piece.text, most))
    return [*parts[:-1], replace(parts[-1], pause_s=piece.pause_s)]


def _sentences(plain: str) -> Iterator[tuple[str, float | None]]:
    """Sentences, each with the pause that parts it from the next, if one does."""
    for number, passage in enumerate(PAUSE.split(plain)):
        if number % 2:
            yield "", max(WORD_PAUSE_S, min(int(passage), LONGEST_PAUSE_MS) / 1e3)
            continue
        paragraphs = passage.split("\n\n")
        for place, paragraph in enumerate(paragraphs):
            cutter = SentenceCutter("sentence", _LONGEST_SENTENCE)
            for at in range(0, len(paragraph), _SLICE):
                for sentence in cutter.feed(paragraph[at : at + _SLICE]):
                    yield sentence, None
            is_last = place == len(paragraphs) - 1
            yield cutter.flush(), None if is_last else PARAGRAPH_PAUSE_S


def _fitting(text: str, longest: int) -> Iterator[Piece]:
    """A sentence in pieces of at most `longest` letters."""
    if spoken_characters(text) <= longest:
        yield Piece(text, SENTENCE_PAUSE_S)
        return
    together: list[tuple[str, float]] = []
    made: list[Piece] = []
    for clause in _CLAUSE_END.split(text):
        if spoken_characters(clause) <= longest:
            together.append((clause, CLAUSE_PAUSE_S))
        else:
            made += [*_packed(together, longest), *_packed(_cut(clause, longest), longest)]
            together = []
    made += _packed(together, longest)
    yield from made[:-1]
    yield replace(made[-1], pause_s=SENTENCE_PAUSE_S)


def _cut(clause: str, longest: int) -> list[tuple[str, float]]:
    """A clause that is too long as words, words that are too long in parts."""
    atoms: list[tuple[str, float]] = []
    for word in clause.split():
        start, size = 0, 0
        for at, character in enumerate(word):
            letters = spoken_characters(character)
            if size + letters > longest and at > start:
                atoms.append((word[start:at], WORD_PAUSE_S))
                start, size = at, 0
            size += letters
        atoms.append((word[start:], WORD_PAUSE_S))
    atoms[-1] = (atoms[-1][0], CLAUSE_PAUSE_S)
    return atoms


def _packed(atoms: list[tuple[str, float]], longest: int) -> Iterator[Piece]:
    """As many atoms together as fit."""
    held: list[str] = []
    size, held_pause_s = 0, 0.0
    for text, pause_s in atoms:
        letters = spoken_characters(text)
        if held and size + 1 + letters > longest:
            yield Piece(" ".join(held), held_pause_s)
            held, size = [], 0
        size += letters + bool(held)
        held.append(text)
        held_pause_s = pause_s
    if held:
        yield Piece(" ".join(held), held_pause_s)
