"""Numbers in a list of words, spelled or in digits, as digits.

A number's form is its digits in a row, however they are read: by value ("four hundred thirty"), in
pairs ("four thirty") or one by one ("four three oh"). Digits do not tell the readings apart, and
Whisper writes 430 for each. openai-whisper's EnglishNumberNormalizer does much of this too, but
reads "one second" as 12nd, "ninth" not at all, and digits apart from the same digits in words.
"""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import TYPE_CHECKING

from speech_assets.asr.english import english_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
ZEROS = ("zero", "oh", "o")
LONGEST_DIGITS = 1_000
"""What is longer is cut: nobody says it, and Python reads no integer of more than 4,300 digits."""
APART = ","
"""The word that stands between numbers that are said apart."""
# Denominators of fractions, by their names after a number; the singular ones only after "one".
_PARTS = {
    "half": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "eighth": 8,
    "tenth": 10,
}
_PARTS_PLURAL = {"halves": 2} | {f"{name}s": value for name, value in _PARTS.items()}
FRACTION_DENOMINATORS = frozenset(_PARTS.values())
# What stands before a "point" that is a noun: "the point five people made".
_DETERMINERS = {
    *("a", "the", "this", "that", "one", "no", "any", "some", "each", "every"),
    *("my", "your", "our", "his", "her", "its", "their"),
}
_HALVES = {
    ("and", "a", "half"): "5",
    ("1/2",): "5",
    ("and", "1/2"): "5",
    ("and", "a", "quarter"): "25",
    ("1/4",): "25",
    ("and", "1/4"): "25",
    ("and", "three", "quarters"): "75",
    ("3/4",): "75",
    ("and", "3/4"): "75",
}


def marked_apart(words: Sequence[str]) -> list[str]:
    """`words` without marks of punctuation (`APART`) but those between two numbers.

    None is kept within one: "one thousand, two hundred".
    """
    found: list[str] = []
    for at, word in enumerate(words):
        if word != APART:
            found.append(word)
        elif found and found[-1] != APART and _ends_number(found[-1]):
            after = next((n for n in range(at, len(words)) if words[n] != APART), len(words))
            following = _word(words, after)
            found += [APART] * _begins_number(following)
    return found


def _ends_number(word: str) -> bool:
    tables = english_tables()
    return word[0].isdigit() or word in tables.ones or word in tables.tens or word in ZEROS


def _begins_number(word: str) -> bool:
    return word in ("double", "triple") or (bool(word) and _ends_number(word))


def digits_of_numbers(words: Sequence[str]) -> list[str]:
    """`words` with every number in digits: 430, 3.14, 1/2, 3rd, 1990s.

    Numbers without a word between are one: "five five five" and "555" are the same. After the name
    of a month a day and a year stay two. What stands apart stays so, but for seven digits that are
    said in three and four, as telephone numbers are.
    """
    found = _digits(words)
    for at in range(len(found) - 2, 0, -1):
        is_number = re.fullmatch(r"\d{3}", found[at - 1]) and re.fullmatch(r"\d{4}", found[at + 1])
        if found[at] == APART and is_number and found[at - 2 : at - 1] != [APART]:
            found[at - 1 : at + 2] = [found[at - 1] + found[at + 1]]
    return found


def _digits(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(words):
        atoms, after = _run(words, at)
        if atoms:
            said, at = _finished(atoms, words, after, found)
            found += said
        elif _is_bare_point(words, at):
            fraction, at = _fraction(words, at + 1)
            text, at = _multiplied(f"0.{fraction}", words, at)
            found.append(text)
        elif (after := _after_half(words, at)) > at:
            found.append("1/2")
            at = after
        else:
            found.append(_alone(words[at]))
            at += 1
    return found


def _after_half(words: Sequence[str], at: int) -> int:
    """Where "half a" or "a half" at `at` ends: half of what follows; `at` if there is none."""
    pair = words[at], _word(words, at + 1)
    is_half = pair in (("half", "a"), ("half", "an"))
    is_half |= pair == ("a", "half") and _word(words, at + 2) != "past"
    return at + 2 if is_half else at


def _run(words: Sequence[str], at: int) -> tuple[list[str], int]:
    """Digits of the cardinal numbers from `at` on, one string each, and where they end."""
    atoms: list[str] = []
    while at < len(words):
        number = _cardinal(words, at)
        if number is not None:
            if atoms and ("." in number[0] or not _has_room(atoms, number[0])):
                break
            atoms.append(number[0])
            at = number[1]
            if "." in number[0]:
                break
        elif words[at] in ("oh", "o") and atoms and _goes_on(words, at + 1):
            if not _has_room(atoms, "0"):
                break
            atoms.append("0")
            at += 1
        elif words[at] in ("double", "triple") and (digit := _digit(words, at + 1)):
            if not _has_room(atoms, 3 * digit):
                break
            atoms.append(digit * (2 if words[at] == "double" else 3))
            at += 2
        else:
            break
    return atoms, at


def _has_room(atoms: Sequence[str], more: str) -> bool:
    """Whether the number is not too long with `more` behind it."""
    return sum(map(len, atoms)) + len(more) <= LONGEST_DIGITS


def _finished(
    atoms: list[str], words: Sequence[str], at: int, before: Sequence[str]
) -> tuple[list[str], int]:
    """What the numbers of a run are together with the words after it, and where that ends."""
    joined, last, word = "".join(atoms), atoms[-1], _word(words, at)
    if word == "point" and "." not in joined:
        fraction, after = _fraction(words, at + 1)
        while fraction:
            joined, at = f"{joined}.{fraction}", after
            if _word(words, at) != "point":
                break
            fraction, after = _fraction(words, at + 1)
        text, at = _multiplied(joined, words, at)
        return [text], at
    if joined.isdigit():
        for phrase, fraction in _HALVES.items():
            if tuple(words[at : at + len(phrase)]) == phrase:
                text, at = _multiplied(f"{joined}.{fraction}", words, at + len(phrase))
                return [text], at
    if len(atoms) == 1 and last.isdigit() and 1 <= int(last) <= 9:
        denominator = _PARTS_PLURAL.get(word) or (_PARTS.get(word) if last == "1" else None)
        if denominator:
            return [f"{last}/{denominator}"], at + 1
    if last.isdigit() and (merged := _with_ordinal(int(last), word)):
        return ["".join([*atoms[:-1], merged])], at + 1
    if last.isdigit() and (decade := _decade(word)):
        return ["".join([*atoms, decade])], at + 1
    return _date(before, atoms), at


def _date(before: Sequence[str], atoms: list[str]) -> list[str]:
    """The run's digits in a row; after a month, or a month and a day, with a day and year apart."""
    is_dated = len(before) > 1 and before[-2] in MONTHS and re.match(r"\d\d?[snrt]", before[-1])
    starts = [0] if is_dated else [1, 0] if before and before[-1] in MONTHS else []
    for start in starts:
        day, rest = atoms[:start], atoms[start:]
        if day and not (day[0].isdigit() and 1 <= int(day[0]) <= 31):
            continue
        for end in range(1, len(rest) + 1):
            if re.fullmatch(r"(1[5-9]|20)\d\d", "".join(rest[:end])):
                after = ["".join(rest[end:])] if rest[end:] else []
                return [*day, "".join(rest[:end]), *after]
    return ["".join(atoms)]


def _cardinal(words: Sequence[str], at: int) -> tuple[str, int] | None:
    """The cardinal number that starts at `at`, in digits, and where it ends."""
    tables = english_tables()
    start = at
    if words[at] == "a" and _word(words, at + 1) in tables.multipliers:
        value, after = Fraction(1), at + 1
        if words[after] == "hundred":
            value, after = _after_hundred(100, words, after + 1)
    else:
        first = _group(words, at)
        if first is None:
            return None
        value, after = first
    total, smallest = Fraction(0), None
    while True:
        multiplier, after_multiplier = _big_multiplier(words, after, value)
        if multiplier == 1:
            total, at = total + value, after
            break
        total, at, smallest = total + value * multiplier, after_multiplier, multiplier
        skip = 1 if _word(words, at) == "and" else 0
        following = _group(words, at + skip)
        if following is None:
            break
        value, after = following
        multiplier, _ = _big_multiplier(words, after, value)
        small_enough = value < 1000 and value.denominator == 1 and value > 0
        if not small_enough or value * multiplier >= smallest or (skip and multiplier > 1):
            break
    if at == start + 1 and words[start][0].isdigit():
        return words[start], at  # As it is written: 007, 3.50.
    return _decimal(total), at


def _group(words: Sequence[str], at: int) -> tuple[Fraction, int] | None:
    """A number below 1,000 in words, or any in digits, with its hundreds; and where it ends."""
    word = _word(words, at)
    if word == "zero":
        return Fraction(0), at + 1
    if re.fullmatch(r"\d+(\.\d+)?", word):
        value, after = Fraction(word), at + 1
    else:
        small = _below_hundred(words, at)
        if small is None:
            return None
        value, after = Fraction(small[0]), small[1]
    if _word(words, after) == "hundred" and 0 < value < 100:
        return _after_hundred(value * 100, words, after + 1)
    return value, after


def _after_hundred(value: Fraction | int, words: Sequence[str], at: int) -> tuple[Fraction, int]:
    skip = 1 if _word(words, at) == "and" else 0
    rest = _below_hundred(words, at + skip)
    # "one hundred and first": the ordinal is the next one's to see.
    if skip and rest is None and 0 < (_ordinal(_word(words, at + 1)) or 0) < 100:
        return Fraction(value), at + 1
    if rest is None or _word(words, rest[1]) == "hundred" or Fraction(value).denominator > 1:
        return Fraction(value), at
    # "eight hundred five five five": digits said one by one are none of the hundred's.
    if not skip and _is_digits(words, at, 3):
        return Fraction(value), at
    return Fraction(value + rest[0]), rest[1]


def _below_hundred(words: Sequence[str], at: int) -> tuple[int, int] | None:
    tables, word = english_tables(), _word(words, at)
    if word in tables.tens:
        unit = tables.ones.get(_word(words, at + 1), 10)
        return (tables.tens[word] + unit, at + 2) if unit < 10 else (tables.tens[word], at + 1)
    return (tables.ones[word], at + 1) if word in tables.ones else None


def _fraction(words: Sequence[str], at: int) -> tuple[str, int]:
    """Digits said after a point, up to a million or such, and where they end; empty if none are.

    Words are read singly or in pairs there: in "point five million" the million is the number's.
    """
    digits = ""
    while at < len(words):
        small = _below_hundred(words, at)
        if small is not None:
            said, after = str(small[0]), small[1]
        elif words[at] in ZEROS or words[at].isdigit():
            said, after = ("0" if words[at] in ZEROS else words[at]), at + 1
        else:
            break
        if len(digits) + len(said) > LONGEST_DIGITS:
            break
        digits, at = digits + said, after
    return digits, at


def _big_multiplier(words: Sequence[str], at: int, number: Fraction) -> tuple[int, int]:
    """Product of the thousands, millions, ... that follow; 1 if none does.

    `number` is what they multiply: those that would make it too long are left out.
    """
    product = 1
    while (value := english_tables().multipliers.get(_word(words, at), 0)) >= 1000:
        if number * product * value >= 10**LONGEST_DIGITS:
            break
        product, at = product * value, at + 1
    return product, at


def _multiplied(number: str, words: Sequence[str], at: int) -> tuple[str, int]:
    """A decimal number with the million or such that follows it."""
    if number.count(".") > 1:
        return number, at
    multiplier, after = _big_multiplier(words, at, Fraction(number))
    if multiplier == 1:
        return number, at
    return _decimal(Fraction(number) * multiplier), after


def _decimal(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    # Only decimals get here, so there is an end to their digits.
    places = next(n for n in itertools.count(1) if (value * 10**n).denominator == 1)
    digits = str((value * 10**places).numerator).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"


def _alone(word: str) -> str:
    """A word without a number before it: ordinals and decades in digits."""
    value = _ordinal(word)
    return _with_suffix(value) if value is not None else _decade(word) or word


def _ordinal(word: str) -> int | None:
    # Whisper's table spells it "nineth".
    return 9 if word == "ninth" else english_tables().ordinals.get(word)


def _with_ordinal(value: int, word: str) -> str:
    """`value` and an ordinal as one ("twenty" and "first"); empty where they are two."""
    ordinal = _ordinal(word)
    if ordinal is None:
        return ""
    if ordinal >= 100:
        return _with_suffix(value * ordinal)
    in_tens = 0 < ordinal < 10 and value % 10 == 0 and value % 100 >= 20
    in_hundreds = ordinal > 0 and value > 0 and value % 100 == 0
    return _with_suffix(value + ordinal) if in_tens or in_hundreds else ""


def _with_suffix(value: int) -> str:
    is_teen = value % 100 in (11, 12, 13)
    return f"{value}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(value % 10, 'th')}"


def _decade(word: str) -> str:
    tens = english_tables().tens.get(word[:-3] + "y") if word.endswith("ies") else None
    return f"{tens}s" if tens else ""


def _digit(words: Sequence[str], at: int) -> str:
    """The one digit that the word at `at` is; empty if it is none."""
    word = _word(words, at)
    value = 0 if word in ZEROS else english_tables().ones.get(word, 10)
    return str(value) if value < 10 else word if re.fullmatch(r"\d", word) else ""


def _is_digits(words: Sequence[str], at: int, count: int) -> bool:
    """Whether so many words are a digit each."""
    return all(_digit(words, at + n) for n in range(count))


def _goes_on(words: Sequence[str], at: int) -> bool:
    """Whether a number follows: what makes an "oh" a zero."""
    return _word(words, at) in ("oh", "o", "double", "triple") or (
        at < len(words) and _cardinal(words, at) is not None
    )


def _is_bare_point(words: Sequence[str], at: int) -> bool:
    if words[at] != "point" or at + 1 >= len(words) or (at and words[at - 1] in _DETERMINERS):
        return False
    return bool(_fraction(words, at + 1)[0])


def _word(words: Sequence[str], at: int) -> str:
    return words[at] if at < len(words) else ""
