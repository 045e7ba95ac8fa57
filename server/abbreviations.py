"""Abbreviations with a full stop, and whether one ends a sentence.

Mostly none does: "Dr. Lee", "e.g. here". Some stand at the end of a sentence as often as within
one: "on Main St. We met", "at 5 p.m. The door". These end it where the next word begins with a
capital, is one that often begins sentences and is in no name. So "St. John" and "U.S. Army" stay
whole; the price is that "on Main St. Cars passed" does, too, which is heard as a pause too few.
Titles are not among them whatever follows: So, He and An are surnames, and No and Who are films'.
"""

from __future__ import annotations

import re

ABBREVIATIONS = frozenset(
    {
        *("mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "mt", "rev", "hon", "gen", "col"),
        *("capt", "lt", "sgt", "vs", "approx", "dept", "est", "vol", "inc", "ltd", "corp"),
        *("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"),
        *("e.g", "i.e", "a.m", "p.m", "u.s", "u.k", "u.s.a", "gov", "sen", "rep", "etc", "co"),
        *("ave", "blvd", "rd", "figs", "pp", "nos", "eq", "eqs"),
    }
)
"""In lower case, without the last full stop."""

_ENDING = frozenset(
    {
        *("st", "ave", "blvd", "rd", "inc", "ltd", "corp", "co", "jr", "sr", "etc"),
        *("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"),
        *("a.m", "p.m", "u.s", "u.k", "u.s.a"),
    }
)
_OPENERS = frozenset(
    {
        *("the", "a", "an", "this", "that", "these", "those", "there", "here"),
        *("i", "he", "she", "it", "we", "they", "you", "i'm", "i've", "i'll", "i'd"),
        *("he's", "she's", "it's", "we're", "they're", "you're", "that's", "there's", "let's"),
        *("my", "his", "her", "its", "our", "their", "your"),
        *("and", "but", "or", "so", "yet", "then", "yes", "no", "not", "now", "next", "also"),
        *("what", "when", "where", "why", "who", "how", "which", "if", "because", "although"),
        *("in", "on", "at", "as", "for", "from", "with", "after", "before", "while", "since"),
        *("is", "are", "was", "were", "do", "does", "did", "can", "could", "would", "should"),
        *("please", "thanks", "well", "oh", "okay", "maybe", "perhaps", "however"),
        *("once", "still", "just", "only", "even", "every", "each", "all", "some", "many", "most"),
    }
)
_BEFORE_WORD = re.compile(r"[\s\"'(\[\u201c\u2018]*+")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
LONGEST_LOOK = 24
"""Characters after the full stop that tell: no opener is longer."""


def ends_sentence(abbreviation: str, after: str, *, is_all: bool) -> bool | None:
    """Whether a sentence ends with `abbreviation`, without its full stop, before `after`.

    None where more text would tell, which never comes if the text `is_all`. `after` may be cut at
    `LONGEST_LOOK`.
    """
    if abbreviation.casefold() not in _ENDING:
        return False
    before = _BEFORE_WORD.match(after)
    assert before is not None  # It may be empty.
    word = _WORD.match(after, before.end())
    rest = after[(word or before).end() :]
    if rest in ("", "'", "\u2019") and not is_all and len(after) < LONGEST_LOOK:
        return None
    if word is None or not word[0][0].isupper():
        return False
    # "No. 5" is a number.
    said = word[0].replace("\u2019", "'").casefold()
    return said in _OPENERS and not (said == "no" and rest.startswith("."))
