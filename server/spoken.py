"""Text as it is said, in the plain letters and marks that the phonemizer knows.

The phonemizer leaves out, without a word, what it does not know: a time of day, a number that
touches its unit, a fraction, a letter of another script. `written` gives words to what has a spoken
form; here is the rest, down to the alphabet.
"""

from __future__ import annotations

import re
import unicodedata

from server.markup import PAUSE, plain_text
from server.written import in_words

LONGEST_PHONEMIZED = 300
"""Characters that go to the phonemizer at once: it cuts at 510 phonemes and drops a space there."""

LONGEST_WORD = 40
"""Characters of one word or compound; longer ones are cut."""
_DIGITS = re.compile(r"\d{16,}")  # Longer numbers have no words: digit by digit.
# Letters that Unicode does not take apart into a plain letter and a mark.
_LETTERS = {
    "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "th", "Ð": "Th",
    "þ": "th", "Þ": "Th", "ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "\u0131": "i",
}  # fmt: skip
_MARKS = {
    "\u2018": "'", "\u2019": "'", "\u201b": "'", "\u02bc": "'", "\u2032": "'", "`": "'",
    "\u201c": " ", "\u201d": " ", "\u201e": " ", '"': " ", "\u00ab": " ", "\u00bb": " ",
    "\u2014": ", ", "\u2013": "-", "\u2012": "-", "\u2010": "-", "\u2011": "-", "\u2212": "-",
    "\u2026": "...", "(": ", ", ")": ", ", "[": ", ", "]": ", ", "{": ", ", "}": ", ",
    "_": " ", "~": " ", "|": " ", "*": " ", "\\": " ", "\u2022": ", ", "\u00bf": "", "\u00a1": "",
    "\u00d7": " times ", "\u00f7": " divided by ", "\u2030": " per mille",
    "\u00bd": " a half", "\u00bc": " a quarter", "\u00be": " three quarters",
    "\u2153": " a third", "\u2154": " two thirds",
    "\uff0c": ", ", "\u3001": ", ", "\u3002": ". ", "\uff01": "! ", "\uff1f": "? ",
    "\uff1a": ": ", "\uff1b": "; ",
}  # fmt: skip
_TABLE = str.maketrans(_LETTERS | _MARKS)
_KEPT_MARKS = frozenset(" !,.:;?'-/&%$#@+^<>\u00a3\u20ac")

_TIDIED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=\d)-(?=\d)"), " "),
    (re.compile(r"(?<=\s)-+(?=\s)|--+"), ", "),
    (re.compile(r"\s*,(?:\s*,)+"), ","),
    (re.compile(r"\s+(?=[,.!?;:])"), ""),
    (re.compile(r",+(?=[.!?;:])|^[\s,;:.]+(?=\w)"), ""),
)


def spoken_pieces(text: str) -> list[str]:
    """What of `text` can be said, in pieces of at most about `LONGEST_PHONEMIZED` characters.

    Marks on letters go (the dictionary has none), tags of emotions go (they are for models that
    were trained with them), and so do symbols and letters of scripts other than Latin.
    """
    said = spoken(text)
    pieces: list[str] = []
    while len(said) > LONGEST_PHONEMIZED:
        ends = [said.rfind(mark, 0, LONGEST_PHONEMIZED) + 1 for mark in (". ", "? ", "! ")]
        cut = max(ends) or said.rfind(", ", 0, LONGEST_PHONEMIZED) + 1
        cut = cut or said.rfind(" ", 0, LONGEST_PHONEMIZED) + 1 or LONGEST_PHONEMIZED
        pieces.append(said[:cut].strip())
        said = said[cut:].strip()
    return [piece for piece in [*pieces, said] if any(map(str.isalnum, piece))]


def spoken(text: str) -> str:
    """`text` with what has a spoken form in words, and nothing that the phonemizer cannot know."""
    text = in_words(PAUSE.sub(", ", plain_text(text))).translate(_TABLE)
    # One space for many, and no long compound: time grows with the square and cube of those.
    plain = " ".join("".join(map(_plain, unicodedata.normalize("NFKD", text))).split())
    for pattern, words in _TIDIED:
        plain = pattern.sub(words, plain)
    plain = _DIGITS.sub(lambda run: " ".join(run[0]), plain)
    return " ".join(" ".join(map(_broken, plain.split())).split())


def _broken(word: str) -> str:
    """The word, a longer one than any in pieces."""
    if len(word) <= LONGEST_WORD:
        return word
    parts = re.split(r"[-/&,+]+", word)
    return " ".join(
        part[at : at + LONGEST_WORD] for part in parts for at in range(0, len(part), LONGEST_WORD)
    )


def _plain(character: str) -> str:
    """The character if it can be said, nothing for a mark on a letter, else a space."""
    if (character.isascii() and character.isalnum()) or character in _KEPT_MARKS:
        return character
    return "" if unicodedata.combining(character) or character == "\u200d" else " "
