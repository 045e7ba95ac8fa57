"""Dates and times of day as they are read out."""

from __future__ import annotations

import re

from server.number_words import cardinal, ordinal, year

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_SHORT = {name[:3]: name for name in _MONTHS} | {"Sept": "September"}
_MONTH = rf"(?:{'|'.join(_MONTHS)})|(?:{'|'.join(sorted(_SHORT, key=len, reverse=True))})\b\.?"
_YEAR = r"1[1-9]\d\d|20\d\d"
_ISO = re.compile(rf"(?<![\w-])({_YEAR})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?![\w-])")
_SLASHED = re.compile(rf"(?<![\w/])(\d{{1,2}})/(\d{{1,2}})/({_YEAR}|\d\d)(?![\w/])")
_MONTH_FIRST = re.compile(
    rf"\b({_MONTH}) ?(\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.,/%-]?\d)(?:,? ({_YEAR})\b)?"
)
_DAY_FIRST = re.compile(
    rf"(?<!\d[-\u2013])\b(the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? "
    rf"({_MONTH})(?![\w])(?:,? ({_YEAR})\b)?"
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
# With spaces "Jan 5 - 7 people" may be two things, so that nothing may follow but the year.
_DAYS = rf"{_DAY}(?:[-\u2013]| ?[-\u2013] ?(?=\d{{1,2}}(?:st|nd|rd|th)?(?! ?\w))){_DAY}\b"
_DAYS_AFTER = re.compile(
    rf"\b({_MONTH}) ?{_DAYS}(?![:.,/%-]?\d)(?! ?(?:%|[ap]\.?m\b))(?:,? ({_YEAR})\b)?"
)
_DAYS_BEFORE = re.compile(
    rf"(?<![\w.,:/$-])(the )?{_DAY} ?[-\u2013] ?{_DAY}(?: of)? ({_MONTH})(?!\w)(?:,? ({_YEAR})\b)?"
)
_ONE_DAY_AFTER = rf"(?:{_MONTH}) ?\d{{1,2}}(?:st|nd|rd|th)?\b"
_ONE_DAY_BEFORE = rf"\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{_MONTH})(?!\w)"
_TO_DATE = re.compile(
    rf"(\b{_ONE_DAY_AFTER}(?:,? (?:{_YEAR})\b)?) ?[-\u2013\u2014] ?(?={_ONE_DAY_AFTER})"
    rf"|({_ONE_DAY_BEFORE}(?:,? (?:{_YEAR})\b)?) ?[-\u2013\u2014] ?(?={_ONE_DAY_BEFORE})"
)
_MONTH_AND_YEAR = re.compile(rf"\b({_MONTH}) ({_YEAR})\b")
# "pm." has the dot that "p.m." has already.
_HALF = r"([ap])(?:\.m\.|m\b\.?)"
_TIME = re.compile(
    rf"(?<![\w:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])(?: ?{_HALF})?", re.IGNORECASE
)
_HOUR = re.compile(rf"(?<![\w:.])(1[0-2]|[1-9]) ?{_HALF}", re.IGNORECASE)


def read_dates(text: str) -> str:
    """`text` with dates and times in words: "3/4/2025" is "March fourth, twenty twenty-five".

    Of two numbers the first is the month, unless only the second can be.
    """
    text = _ISO.sub(lambda m: _month_first(int(m[2]), m[3], m[1]) or m[0], text)
    text = _SLASHED.sub(_slashed, text)
    text = _TO_DATE.sub(lambda m: f"{m[1] or m[2]} to ", text)
    text = _DAYS_BEFORE.sub(_days_before, _DAYS_AFTER.sub(_days_after, text))
    text = _DAY_FIRST.sub(_day_first, text)
    text = _MONTH_FIRST.sub(
        lambda m: _month_first(_number_of(m[1]), m[2], m[3] or "") or m[0], text
    )
    text = _MONTH_AND_YEAR.sub(lambda m: f"{_name(m[1])} {year(m[2])}", text)
    return _HOUR.sub(_hour, _TIME.sub(_time, text))


def _name(month: str) -> str:
    return _SHORT.get(month.rstrip("."), month)


def _number_of(month: str) -> int:
    return _MONTHS.index(_name(month)) + 1


def _month_first(month: int, day: str, of_year: str) -> str:
    """ "March fourth, twenty twenty-five"; "" when there is no such day."""
    if not (1 <= month <= 12 and 1 <= int(day) <= 31):
        return ""
    said = f"{_MONTHS[month - 1]} {_day(day)}"
    return f"{said}, {year(of_year)}" if of_year else said


def _slashed(match: re.Match[str]) -> str:
    first, second, of_year = int(match[1]), int(match[2]), match[3]
    if len(of_year) == 2:
        of_year = f"{'20' if int(of_year) < 70 else '19'}{of_year}"
    if first > 12:
        first, second = second, first
    return _month_first(first, str(second), of_year) or match[0]


def _day_first(match: re.Match[str]) -> str:
    if not 1 <= int(match[2]) <= 31:
        return match[0]
    of_year = f" {year(match[4])}" if match[4] else ""
    return f"the {_day(match[2])} of {_name(match[3])}{of_year}"


def _days_after(match: re.Match[str]) -> str:
    """ "Jan 5-7": January fifth to seventh; not of days that do not ascend."""
    if not 1 <= int(match[2]) < int(match[3]) <= 31:
        return match[0]
    of_year = f", {year(match[4])}" if match[4] else ""
    return f"{_name(match[1])} {_day(match[2])} to {_day(match[3])}{of_year}"


def _days_before(match: re.Match[str]) -> str:
    """ "5-7 January": the fifth to seventh of January."""
    if not 1 <= int(match[2]) < int(match[3]) <= 31:
        return match[0]
    of_year = f" {year(match[5])}" if match[5] else ""
    return f"the {_day(match[2])} to {_day(match[3])} of {_name(match[4])}{of_year}"


def _day(digits: str) -> str:
    return ordinal(str(int(digits)))


def _time(match: re.Match[str]) -> str:
    hour, minute, second, half = match[1], match[2], match[3], match[4]
    said = cardinal(str(int(hour)))
    if minute == "00" and not second:
        if not half:
            said += " o'clock" if 1 <= int(hour) <= 12 else " hundred"
    else:
        said += f" {_sixtieths(minute)}" + (f" {_sixtieths(second)}" if second else "")
    return f"{said} {half.lower()}.m." if half else said


def _hour(match: re.Match[str]) -> str:
    return f"{cardinal(match[1])} {match[2].lower()}.m."


def _sixtieths(digits: str) -> str:
    return f"oh {cardinal(digits[1])}" if digits[0] == "0" else cardinal(digits)
