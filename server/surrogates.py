"""Halves of UTF-16 pairs in text, from clients that cut what they send by UTF-16 units.

JSON can write one alone ("\\ud83d"); no UTF-8 can hold it.
"""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]")


def joined(text: str) -> str:
    """`text` with halves that belong together as their character, and any other as U+FFFD.

    That is what browsers make of one when they encode it. It is left out of speech.
    """
    if _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def without_half(text: str) -> tuple[str, str]:
    """`text` without the first half that it ends with, and that half; "" if it ends whole."""
    return (text[:-1], text[-1]) if _FIRST_HALF.fullmatch(text[-1:]) else (text, "")
