"""Money, percentages, measures and ranges as they are read out."""

from __future__ import annotations

import re

from server.number_words import cardinal, number, year

NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,18})(?:\.\d{1,18})?"
_START = r"(?<![\w.,])"
_MULTIPLE = r"(?: ?(thousand|million|billion|trillion|bn|[kKMB])\b)?"
_MULTIPLES = {"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "bn": "billion"}
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "\u00a3": ("pound", "pounds", "penny", "pence"),
    "\u20ac": ("euro", "euros", "cent", "cents"),
    "\u00a5": ("yen", "yen", "", ""),
    "\u20b9": ("rupee", "rupees", "paisa", "paise"),
}
_CODES = {"USD": "$", "GBP": "\u00a3", "EUR": "\u20ac", "JPY": "\u00a5", "INR": "\u20b9"}
_SIGN = "|".join(map(re.escape, _CURRENCIES))
_MONEY = re.compile(
    rf"(?<![\w.,])(?:US)?(-|\u2212)?({_SIGN}) ?({NUMBER})"
    rf"(?: ?[-\u2013] ?(?:{_SIGN})?({NUMBER}))?{_MULTIPLE}"
)
_MONEY_AFTER = re.compile(
    rf"{_START}({NUMBER}){_MULTIPLE} ?({_SIGN}|(?:{'|'.join(_CODES)})\b)(?!\d)"
)
_CENTS = re.compile(rf"{_START}({NUMBER}) ?\u00a2")
_UNITS = {
    "km/h": "kilometer per hour", "kph": "kilometer per hour", "mph": "mile per hour",
    "m/s": "meter per second", "km\u00b2": "square kilometer", "m\u00b2": "square meter",
    "m\u00b3": "cubic meter", "ft\u00b2": "square foot", "sq ft": "square foot",
    "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "m": "meter", "mi": "mile",
    "ft": "foot", "yd": "yard", "kg": "kilogram", "mg": "milligram", "g": "gram", "lb": "pound",
    "lbs": "pound", "oz": "ounce", "ml": "milliliter", "mL": "milliliter", "L": "liter",
    "l": "liter", "ms": "millisecond", "min": "minute", "mins": "minute", "sec": "second",
    "secs": "second", "hr": "hour", "hrs": "hour", "Hz": "hertz", "kHz": "kilohertz",
    "MHz": "megahertz", "GHz": "gigahertz", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte",
    "GB": "gigabyte", "TB": "terabyte", "Mbps": "megabit per second", "kW": "kilowatt",
    "kWh": "kilowatt hour", "W": "watt", "V": "volt", "dB": "decibel", "kcal": "kilocalorie",
    "\u00b0C": "degree Celsius", "\u00b0F": "degree Fahrenheit", "\u00b0": "degree",
}  # fmt: skip
_UNIT = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
# As people write it: with a space, a small letter, or the sign of "1\u00ba".
_TEMPERATURE = re.compile(r"[\u00b0\u00ba] ?([CFcf])(?!\w)")
_AND_IN = re.compile(r"(?<=\u00b0[CF]) ?/ ?(?=[-\u2212]?\d)")  # "25\u00b0C/77\u00b0F"
_MEASURE = re.compile(
    rf"(?<![\w.,])([-\u2212](?=\d))?({NUMBER})(?: ?(\u00b0[CF]?)? ?[-\u2013] ?({NUMBER}))?"
    rf" ?({_UNIT})(?!\w)(?!/\w)"
)
_PERCENT = re.compile(
    rf"(?<![\w.,])([-\u2212](?=\d))?({NUMBER})(?:%? ?[-\u2013] ?({NUMBER}))? ?([%\u2030])"
)
_RANGE = re.compile(rf"{_START}({NUMBER})( ?[-\u2013\u2014] ?)({NUMBER})(?![\w-])(?![.,]\d)")


def read_quantities(text: str) -> str:
    """`text` with money, percentages, measures and ranges in words."""
    text = _MONEY.sub(_money, text)
    text = _MONEY_AFTER.sub(lambda m: _amount(_CODES.get(m[3], m[3]), m[1], m[2]), text)
    text = _CENTS.sub(lambda m: f"{number(m[1])} {'cent' if m[1] == '1' else 'cents'}", text)
    text = _PERCENT.sub(_percent, text)
    text = _TEMPERATURE.sub(lambda m: f"\u00b0{m[1].upper()}", text)
    text = _MEASURE.sub(_measure, _AND_IN.sub(", ", text))
    return _RANGE.sub(_range, text)


def is_year(digits: str) -> bool:
    """Whether a number of this form, alone, is read as a year: 1100 to 2099."""
    return len(digits) == 4 and digits.isdecimal() and 1_100 <= int(digits) < 2_100


def _money(match: re.Match[str]) -> str:
    minus, sign, first, last, multiple = match.groups()
    said = _amount(sign, last or first, multiple)
    if last:
        said = f"{number(first)} to {said}"
    return f"minus {said}" if minus else said


def _amount(sign: str, amount: str, multiple: str | None) -> str:
    """ "3.50" dollars: three dollars and fifty cents; "2.5" and "M": two point five million."""
    one, many, cent, cents = _CURRENCIES[sign]
    if multiple:
        return f"{number(amount)} {_MULTIPLES.get(multiple, multiple)} {many}"
    whole, _, rest = amount.partition(".")
    if len(rest) != 2 or not cent:
        return f"{number(amount)} {one if amount == '1' else many}"
    said = (
        [f"{cardinal(whole)} {one if whole == '1' else many}"]
        if int(whole.replace(",", ""))
        else []
    )
    if int(rest) or not said:
        said.append(f"{cardinal(str(int(rest)))} {cent if int(rest) == 1 else cents}")
    return " and ".join(said)


def _percent(match: re.Match[str]) -> str:
    minus, first, last, sign = match.groups()
    name = "percent" if sign == "%" else "per mille"
    return f"{_span(minus, first, last)} {name}"


def _measure(match: re.Match[str]) -> str:
    minus, first, unit_of_first, last, unit = match.groups()
    if unit_of_first and not unit.startswith(unit_of_first):
        return match[0]
    return f"{_span(minus, first, last)} {_unit(_UNITS[unit], one=(last or first) == '1')}"


def _span(minus: str | None, first: str, last: str | None) -> str:
    said = f"minus {number(first)}" if minus else number(first)
    return f"{said} to {number(last)}" if last else said


def _unit(name: str, *, one: bool) -> str:
    if one or name.endswith("hertz"):
        return name
    if name.endswith("foot"):
        return f"{name[:-4]}feet"
    # "miles per hour", "degrees Celsius", "square meters".
    for inner in (" per ", " Celsius", " Fahrenheit"):
        if inner in name:
            head, _, rest = name.partition(inner)
            return f"{head}s{inner}{rest}"
    return f"{name}s"


def _range(match: re.Match[str]) -> str:
    """ "10-20": ten to twenty. With a hyphen and not ascending it is a score or a code."""
    first, dash, last = match.groups()
    if dash == "-" and _value(first) >= _value(last) and not (is_year(first) and len(last) == 2):
        return f"{first} {last}"
    said = year(first) if is_year(first) else number(first)
    return f"{said} to {year(last) if is_year(last) else number(last)}"


def _value(text: str) -> float:
    return float(text.replace(",", ""))
