"""Whisper's English normaliser: the form in which word errors are usually counted.

Imported only when used: it comes with all of openai-whisper, and torch.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whisper.normalizers import EnglishTextNormalizer


_TOO_LONG = re.compile(r"\S{1000}(?=\S)")


def whisper_form(text: str) -> str:
    """`text` in lower case without punctuation, contractions or British spelling, as Whisper's
    English normaliser has it (openai-whisper 20250625, whisper/normalizers/english.py).

    It leaves the last point of "..." as a word, which nobody says: such are left out. It fails for
    numbers of more than 4,300 digits: words of more than 1,000 characters are cut.
    """
    words = _normaliser()(_TOO_LONG.sub(r"\g<0> ", text)).split()
    return " ".join(word for word in words if any(map(str.isalnum, word)))


@dataclass(frozen=True, slots=True)
class EnglishTables:
    """Tables of that normaliser.

    Attributes:
        contractions: patterns of contractions and titles in lower-case text, and what they become.
        spellings: British to American.
        ones: one to nineteen.
        tens: twenty to ninety.
        multipliers: hundred, thousand and up.
        ordinals: first to nineteenth, twentieth to ninetieth, hundredth and up, with their numbers.
    """

    contractions: Mapping[str, str]
    spellings: Mapping[str, str]
    ones: Mapping[str, int]
    tens: Mapping[str, int]
    multipliers: Mapping[str, int]
    ordinals: Mapping[str, int]


@cache
def english_tables() -> EnglishTables:
    """The tables, read once."""
    normaliser = _normaliser()
    numbers = normaliser.standardize_numbers
    ordinals = numbers.ones_ordinal | numbers.tens_ordinal | numbers.multipliers_ordinal
    return EnglishTables(
        contractions=normaliser.replacers,
        spellings=normaliser.standardize_spellings.mapping,
        ones=numbers.ones,
        tens=numbers.tens,
        multipliers=numbers.multipliers,
        ordinals={name: value for name, (value, _) in ordinals.items()},
    )


@cache
def _normaliser() -> EnglishTextNormalizer:
    with warnings.catch_warnings():
        # It leaves the file of its spellings to the garbage collector (openai-whisper 20250625).
        warnings.simplefilter("ignore", ResourceWarning)
        from whisper.normalizers import EnglishTextNormalizer

        return EnglishTextNormalizer()
