"""Numbers in words, as Americans read them: by value, as ordinals, years, digits and decimals."""

from __future__ import annotations

from functools import lru_cache

from num2words import num2words

LONGEST_NUMBER = 15
"""Digits that have a value in words; longer numbers are read digit by digit."""

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_FRACTIONS = {2: ("half", "halves"), 4: ("quarter", "quarters")}


@lru_cache(4_096)
def cardinal(digits: str) -> str:
    """ "1,234" or "1234": one thousand two hundred thirty-four. Zeros in front are read out."""
    plain = digits.replace(",", "")
    if len(plain) > LONGEST_NUMBER or (len(plain) > 1 and plain[0] == "0"):
        return digit_by_digit(plain)
    return _said(int(plain), "cardinal")


@lru_cache(4_096)
def ordinal(digits: str) -> str:
    """ "21": twenty-first."""
    plain = digits.replace(",", "")
    if len(plain) > LONGEST_NUMBER:
        return f"{digit_by_digit(plain)}th"
    return _said(int(plain), "ordinal")


@lru_cache(4_096)
def year(digits: str) -> str:
    """ "1984": nineteen eighty-four; "2005": two thousand five."""
    value = int(digits)
    if value % 1_000 < 10:
        return _said(value, "cardinal")
    return _said(value, "year").replace("oh-", "oh ")


def decade(digits: str) -> str:
    """ "1980" or "80": nineteen eighties, eighties."""
    words = year(digits) if len(digits) == 4 else cardinal(digits)
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def digit_by_digit(digits: str) -> str:
    """ "555": five five five."""
    return " ".join(_DIGITS[int(digit)] for digit in digits if digit.isdigit())


def number(text: str) -> str:
    """ "1,200.50": one thousand two hundred point five zero; ".5": point five."""
    whole, point, rest = text.partition(".")
    words = cardinal(whole) if whole else ""
    return f"{words} point {digit_by_digit(rest)}".strip() if point and rest else words


def fraction(above: str, below: str) -> str:
    """ "3", "4": three quarters."""
    one, many = _FRACTIONS.get(int(below), (ordinal(below), f"{ordinal(below)}s"))
    return f"{cardinal(above)} {one if int(above) == 1 else many}"


def _said(value: int, to: str) -> str:
    # num2words writes commas and "and", which would be heard as pauses and as British.
    return num2words(value, to=to).replace(",", "").replace(" and ", " ")
