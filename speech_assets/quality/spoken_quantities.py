"""Money, percentages, units, dates and times of day in words whose numbers are in digits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from speech_assets.quality.spoken_numbers import MONTHS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Money's form has its sign; pounds of weight have it too, for they sound like pounds sterling.
_CURRENCIES = {
    **dict.fromkeys(("dollar", "dollars"), "$"),
    **dict.fromkeys(("pound", "pounds", "lb", "lbs"), "£"),
    **dict.fromkeys(("euro", "euros"), "€"),
}
CURRENCY_NAMES = {"$": "dollars", "£": "pounds", "€": "euros"}
_HUNDREDTHS = ("cent", "cents", "pence")
# Units by their short form, with what is said for it after a number.
_SAID = {
    "km": "kilometer kilometers kilometre kilometres",
    "m": "meter meters metre metres",
    "cm": "centimeter centimeters centimetre centimetres",
    "mm": "millimeter millimeters millimetre millimetres",
    "mi": "mile miles",
    "ft": "foot feet",
    "inches": "inch",
    "yd": "yard yards",
    "kg": "kilogram kilograms kilo kilos",
    "g": "gram grams gramme grammes",
    "mg": "milligram milligrams",
    "oz": "ounce ounces",
    "l": "liter liters litre litres",
    "ml": "milliliter milliliters millilitre millilitres",
    "hz": "hertz",
    "khz": "kilohertz",
    "mhz": "megahertz",
    "ghz": "gigahertz",
    "kb": "kilobyte kilobytes",
    "mb": "megabyte megabytes",
    "gb": "gigabyte gigabytes",
    "tb": "terabyte terabytes",
    "ms": "millisecond milliseconds msec",
    "sec": "seconds secs s 2nd",  # "second" is an ordinal by now.
    "min": "minute minutes mins",
    "hr": "hour hours hrs",
    "w": "watt watts",
    "kw": "kilowatt kilowatts",
    "kwh": "kilowatt-hours",
    "v": "volt volts",
    "db": "decibel decibels",
    "degrees": "degree",
}
_LONG = {
    ("miles", "per", "hour"): "mph",
    ("kilometers", "per", "hour"): "kph",
    ("kilometres", "per", "hour"): "kph",
    ("km", "per", "hour"): "kph",
    ("kmh",): "kph",
    ("kilowatt", "hours"): "kwh",
    ("kilowatt", "hour"): "kwh",
    **{
        (degree, scale): f"degrees {name}"
        for degree in ("degree", "degrees")
        for name in ("celsius", "fahrenheit")
        for scale in (name, name[0], *(["centigrade"] if name == "celsius" else []))
    },
}
_UNITS: dict[tuple[str, ...], str] = {
    **_LONG,
    **{(said,): short for short, words in _SAID.items() for said in (short, *words.split())},
    ("mph",): "mph",
    ("kph",): "kph",
}
UNIT_WORDS = tuple(sorted({phrase[0] for phrase in _UNITS} | set(_CURRENCIES) | {"cents"}))
_LONGEST_UNIT = max(map(len, _UNITS))
_NUMBER = re.compile(r"\d+(?:\.\d+)*|\d/\d+")
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)")
# Also a verb: a day before them needs an "of" or a year.
_DOUBTFUL_MONTHS = ("march", "may")
_SHORT_MONTHS = {name[:3]: name for name in MONTHS} | {"sept": "september"}
# Words that are no months, unless a day follows.
_DOUBTFUL_SHORT = ("jan", "mar", "dec")


def one_form_of_quantities(words: Sequence[str]) -> list[str]:
    """`words` with $3.50, 5%, 20 km, march 3 2025, 430 and the like in one form each."""
    found: list[str] = []
    at = 0
    while at < len(words):
        for rule in _RULES:
            if (made := rule(words, at, found)) is not None:
                said, at = made
                found += said
                break
        else:
            found.append(words[at])
            at += 1
    return found


def _date(words: Sequence[str], at: int, found: list[str]) -> tuple[list[str], int] | None:
    """ "march the 3rd", "3rd of march", "3 march 2025", "mar 3": the month, then the day."""
    month = _month(words, at)
    if month:
        after = at + 2 if _word(words, at + 1) == "the" else at + 1
        if (day := _ORDINAL.fullmatch(_word(words, after))) and 1 <= int(day[1]) <= 31:
            return [month, str(int(day[1]))], after + 1
        return ([month], at + 1) if month != words[at] else None
    day = re.fullmatch(r"(\d{1,2})(st|nd|rd|th)?", words[at])
    if day is None or not 1 <= int(day[1]) <= 31:
        return None
    has_of = _word(words, at + 1) == "of"
    after = at + 2 if has_of else at + 1
    month = _month(words, after)
    has_year = re.fullmatch(r"\d{4}", _word(words, after + 1)) is not None
    if not month or (month in _DOUBTFUL_MONTHS and not has_of and not has_year):
        return None
    if not has_of and re.fullmatch(r"\d{1,2}", _word(words, after + 1)):
        return None  # "on day 5 june 6": the number after a month is its day.
    if found and found[-1] == "the":
        found.pop()
    return [month, str(int(day[1]))], after + 1


def _month(words: Sequence[str], at: int) -> str:
    """Name of the month that the word at `at` is; empty if it is none."""
    word = _word(words, at)
    if word in MONTHS:
        return word
    is_dated = re.match(r"\d", _word(words, at + 1)) is not None
    return "" if word in _DOUBTFUL_SHORT and not is_dated else _SHORT_MONTHS.get(word, "")


def _clock(words: Sequence[str], at: int, found: list[str]) -> tuple[list[str], int] | None:
    """ "half past 4", "quarter to 5", "10 to 5", "7 minutes past 4": 430, 445, 450, 407; "a m" and
    "p m" after a number: am, pm."""
    if words[at] in ("a", "p") and _word(words, at + 1) == "m" and found and _is_number(found[-1]):
        return [f"{words[at]}m"], at + 2
    if (said := _minutes(words, at, found)) is not None:
        return said
    minutes, hour = words[at : at + 2], _word(words, at + 2)
    if not re.fullmatch(r"[1-9]|1[0-2]", hour):
        return None
    match tuple(minutes):
        case ("half", "past"):
            said = f"{hour}30"
        case ("quarter", "past" | "after"):
            said = f"{hour}15"
        case ("quarter", "to"):
            said = f"{(int(hour) - 2) % 12 + 1}45"
        case _:
            return None
    if words[at] == "quarter" and found and found[-1] == "a":
        found.pop()
    return [said], at + 3


def _minutes(words: Sequence[str], at: int, found: list[str]) -> tuple[list[str], int] | None:
    """Minutes past or to an hour; without the word only 5, 10, 20 and 25 of them.

    "5 to 10" is said of a range, too, and has the same form; not where it is plainly one: of dates,
    of what has a unit, after "from".
    """
    is_named = _word(words, at + 1) in ("minute", "minutes", "min", "mins")
    after = at + 2 if is_named else at + 1
    way, hour = _word(words, after), _word(words, after + 1)
    if not re.fullmatch(r"[1-9]|[12]\d" if is_named else r"5|10|20|25", words[at]):
        return None
    if way not in ("past", "after", "to") or not re.fullmatch(r"[1-9]|1[0-2]", hour):
        return None
    unit = _word(words, after + 2)
    if unit == "percent" or unit in UNIT_WORDS or (found and found[-1] in (*MONTHS, "from")):
        return None
    minutes = int(words[at])
    if way == "to":
        return [f"{(int(hour) - 2) % 12 + 1}{60 - minutes}"], after + 2
    return [f"{hour}{minutes:02}"], after + 2


def _money(words: Sequence[str], at: int, _: list[str]) -> tuple[list[str], int] | None:
    """ "3 dollars and 50 cents", "3 dollars 50", "3.5 dollars": $3.50."""
    number, unit = words[at], _word(words, at + 1)
    if not re.fullmatch(r"\d+(\.\d+)?", number):
        return None
    if unit in _HUNDREDTHS:
        return ([f"$0.{int(number):02}"], at + 2) if re.fullmatch(r"\d\d?", number) else None
    sign = _CURRENCIES.get(unit)
    if sign is None:
        return None
    whole, part = [*number.split("."), ""][:2]
    at += 2
    if not part:
        skip = 1 if _word(words, at) == "and" else 0
        cents, name = _word(words, at + skip), _word(words, at + skip + 1)
        if re.fullmatch(r"\d\d?", cents) and (name in _HUNDREDTHS or not skip):
            part = f"{int(cents):02}"
            at += skip + (2 if name in _HUNDREDTHS else 1)
    part = part.ljust(2, "0")
    return [f"{sign}{whole}.{part}" if part.strip("0") else f"{sign}{whole}"], at


def _measure(words: Sequence[str], at: int, _: list[str]) -> tuple[list[str], int] | None:
    """ "5 percent", "20 kilometers": 5%, 20 km; and "negative 5": minus 5."""
    if words[at] == "negative" and _is_number(_word(words, at + 1)):
        return ["minus"], at + 1
    if not _is_number(words[at]):
        return None
    if _word(words, at + 1) == "percent":
        return [f"{words[at]}%"], at + 2
    for length in range(_LONGEST_UNIT, 0, -1):
        unit = _UNITS.get(tuple(words[at + 1 : at + 1 + length]))
        if unit is not None:
            return [words[at], *unit.split()], at + 1 + length
    return None


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None


def _word(words: Sequence[str], at: int) -> str:
    return words[at] if at < len(words) else ""


_RULES = (_date, _clock, _money, _measure)
