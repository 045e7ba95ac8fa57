"""The form that is the same whatever the format: pairs worked by hand, and its fixed point."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speech_assets.quality.spoken_forms import heard_forms, marked_form, spoken_form, spoken_forms
from speech_assets.quality.word_errors import word_errors

MAY = "on may 2 1998 64 ran"
SAME = [
    # Times of day.
    ("at 4:30", "at 4.30", "at 430"),
    ("4:30", "four thirty", "430"),
    ("4:30", "half past four", "430"),
    ("4:30", "430", "430"),
    ("4:30 p.m.", "four thirty pm", "430 pm"),
    ("4:30pm", "4.30 P M", "430 pm"),
    ("at 4:13", "at 4.13", "at 413"),
    ("10:05", "ten oh five", "1005"),
    ("3:00", "three o'clock", "3"),
    ("4:15", "a quarter past 4", "415"),
    ("4:45", "quarter to five", "445"),
    ("12:45", "a quarter to one", "1245"),
    ("9 a.m.", "nine a m", "9 am"),
    ("4:50", "ten to five", "450"),
    ("4:20", "twenty past four", "420"),
    ("4:05", "five past 4", "405"),
    ("12:35 a.m.", "twenty-five to one a m", "1235 am"),
    ("4:53", "seven minutes to five", "453"),
    # Dates and years.
    ("March 3rd, 2025", "march third twenty twenty five", "march 3 2025"),
    ("March 3, 2025", "the third of March two thousand and twenty-five", "march 3 2025"),
    ("3 March 2025", "March the third, twenty twenty-five", "march 3 2025"),
    ("March 20, 2025", "march twenty twenty twenty five", "march 20 2025"),
    ("On the 2nd of May 1998, 64 ran.", "on may two nineteen ninety-eight 64 ran", MAY),
    ("On May 2nd, 1998, sixty four ran.", "on may second 1998, 64 ran", MAY),
    ("2025-03-01", "March 1st, 2025", "march 1 2025"),
    ("May 2025", "may twenty twenty-five", "may 2025"),
    ("Sept. 1st", "September first", "september 1"),
    ("1984", "nineteen eighty-four", "1984"),
    ("1984", "one thousand nine hundred and eighty four", "1984"),
    ("2005", "two thousand and five", "2005"),
    ("2005", "twenty oh five", "2005"),
    ("1900", "nineteen hundred", "1900"),
    ("the 1990s", "the nineteen nineties", "the 1990s"),
    ("the '90s", "the nineties", "the 90s"),
    ("1914-1918", "nineteen fourteen to nineteen eighteen", "1914 to 1918"),
    # Cardinal numbers.
    ("105", "one hundred and five", "105"),
    ("100 people", "a hundred people", "100 people"),
    ("1,234", "one thousand two hundred thirty four", "1234"),
    ("2,500", "twenty five hundred", "2500"),
    ("102,000", "one hundred and two thousand", "102000"),
    ("1,002,003", "one million two thousand three", "1002003"),
    ("20 million", "twenty million", "20000000"),
    ("555-1234", "five five five one two three four", "5551234"),
    ("555 1234", "five five five, twelve thirty-four", "5551234"),
    ("1-800-555-1234", "one eight hundred five five five one two three four", "18005551234"),
    ("805 seats", "eight hundred five seats", "805 seats"),
    ("٣٤٥", "three hundred forty-five", "345"),
    ("x²", "x squared", "x squared"),
    ("World War II", "world war two", "world war 2"),
    ("Henry VIII", "henry eight", "henry 8"),
    ("77", "double seven", "77"),
    ("007", "double oh seven", "007"),
    ("room 430", "room four hundred thirty", "room 430"),
    ("-4", "minus four", "minus 4"),
    ("5-10", "five to ten", "955"),  # As the time is said.
    ("5-10 km", "five to ten kilometers", "5 to 10 km"),
    ("May 5-10", "may five to ten", "may 5 to 10"),
    ("3-10", "three to ten", "3 to 10"),
    ("1998-64", "1998, 64", "1998 64"),
    ("1998-64", "nineteen ninety-eight, sixty-four", "1998 64"),
    ("1914-18", "1914 to 18", "1914 to 18"),
    ("2, 1", "two, one", "2 1"),
    ("2; 1", "two. One!", "2 1"),
    ("1,200", "one thousand, two hundred", "1200"),
    ("flight 2306", "flight 23-06", "flight 2306"),
    # Decimals and fractions.
    ("3.14", "three point one four", "3.14"),
    ("0.5", "point five", "0.5"),
    ("1.5 million", "one point five million", "1500000"),
    ("2.5", "two and a half", "2.5"),
    ("2½ million", "two and a half million", "2500000"),
    ("version 3.11", "version three point eleven", "version 3.11"),
    ("version 3.10", "version three point one oh", "version 3.10"),
    ("4.20", "four point two zero", "4.20"),
    ("3/4", "three quarters", "3/4"),
    ("½ cup", "half a cup", "1/2 cup"),
    ("1/2", "a half", "1/2"),
    ("1/2 hour", "half an hour", "1/2 hr"),
    ("half of them", "half of them", "half of them"),
    ("2/3 of it", "two thirds of it", "2/3 of it"),
    # Ordinals.
    ("the 9th", "the ninth", "the 9th"),
    ("21st", "twenty-first", "21st"),
    ("101st", "one hundred and first", "101st"),
    ("100th", "one hundredth", "100th"),
    # Money and percentages.
    ("$3.50", "three dollars and fifty cents", "$3.50"),
    ("$3.50", "three dollars fifty", "$3.50"),
    ("$3.5 million", "three point five million dollars", "$3500000"),
    ("$20m", "twenty million dollars", "$20000000"),
    ("50 cents", "$0.50", "$0.50"),
    ("£5", "five pounds", "£5"),
    ("€1.20", "one euro twenty", "€1.20"),
    ("15%", "fifteen per cent", "15%"),
    ("2.5%", "two point five percent", "2.5%"),
    # Units.
    ("5 km", "five kilometres", "5 km"),
    ("60 mph", "sixty miles per hour", "60 mph"),
    ("24kHz", "twenty-four kilohertz", "24 khz"),
    ("20°C", "twenty degrees celsius", "20 degrees celsius"),
    ("16GB", "sixteen gigabytes", "16 gb"),
    ("1 sec", "one second", "1 sec"),
    ("30 s", "thirty seconds", "30 sec"),
    ("6 in.", "six inches", "6 inches"),
    # Letters, titles, spelling.
    ("U.S.", "U S", "us"),
    ("AT&T", "A T and T", "a t and t"),
    ("R&D", "r and d", "r and d"),
    ("gate B17", "gate b seventeen", "gate b 17"),
    ("Dr. Smith", "doctor smith", "doctor smith"),
    ("St. Louis", "Saint Louis", "saint louis"),
    ("Main St.", "Main Street", "main street"),
    ("the colour grey", "the color gray", "the color gray"),
    ("it's", "it is", "it is"),
    ("John\u2019s", "Johns", "johns"),
    ("café", "cafe", "cafe"),
    ("No. 5", "number five", "number 5"),
    ("example.com", "example dot com", "example dot com"),
    ("2 + 2 = 4", "two plus two equals four", "2 plus 2 equals 4"),
    ("(twelve people) met.", "12 people met", "12 people met"),
]
OTHER = [
    ("13", "30"),
    ("fifteen", "fifty"),
    ("fourteen", "forty"),
    ("4:30", "4:13"),
    ("10:05", "10:50"),
    ("9 am", "9 pm"),
    ("half past four", "half past five"),
    ("quarter to five", "quarter past five"),
    ("ten to five", "ten past five"),
    ("twenty to four", "twenty past four"),
    ("two, one", "21"),
    ("two, one", "twenty one"),
    ("two. One", "21"),
    ("90, 5", "95"),
    ("two", "too"),
    ("for", "four"),
    ("ate", "eight"),
    ("won", "one"),
    ("$3.50", "$350"),
    ("$3.50", "£3.50"),
    ("$3.50", "3.50"),
    ("5%", "5"),
    ("3.14", "314"),
    ("version 3.10", "version 310"),
    ("4.20", "420"),
    ("half past four", "1/2 past four"),
    ("3.14", "3.41"),
    ("0.5", "5"),
    ("1/3", "1/4"),
    ("twenty one", "twenty first"),
    ("3rd", "3"),
    ("2025", "2024"),
    ("1984", "1994"),
    ("90s", "90"),
    ("March 3", "May 3"),
    ("March 3", "March 13"),
    ("-4", "4"),
    ("one million", "one billion"),
    ("1,000", "1,000,000"),
    ("a hundred", "a thousand"),
    ("20 km", "20 m"),
    ("6 miles", "6 kilometers"),
    ("20°C", "20°F"),
    ("can", "can't"),
    ("it is", "it was"),
    ("cat", "cats"),
    ("the dog", "a dog"),
    ("555 1234", "555 1243"),
    ("Dr. Smith", "Mr. Smith"),
]


@pytest.mark.parametrize(("written", "said", "form"), SAME)
def test_what_sounds_alike_has_one_form(written: str, said: str, form: str) -> None:
    assert spoken_form(written) == form
    assert spoken_form(said) == form


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_sounds_different_stays_different(one: str, other: str) -> None:
    assert spoken_form(one) != spoken_form(other)


def test_sentences_keep_their_other_words() -> None:
    assert (
        spoken_form("The meeting is on March 3rd, 2025, at 4:30 in the afternoon.")
        == spoken_form("the meeting is on march third 2025 at 4.30 in the afternoon")
        == "the meeting is on march 3 2025 at 430 in the afternoon"
    )
    assert (
        spoken_form("Flight 2306 to Denver departs at 7:40; it costs $48.75, tip of 15% included!")
        == "flight 2306 to denver departs at 740 it costs $48.75 tip of 15% included"
    )
    assert spoken_form("Wait a second, he may march on the first of May.") == (
        "wait a 2nd he may march on may 1"
    )
    assert spoken_form("") == spoken_form(" ... ") == ""


def test_money_may_be_said_without_its_currency() -> None:
    assert spoken_forms("it was $19.95, 2 of them") == [
        "it was $19.95 2 of them",
        "it was 1995 2 of them",
        "it was 19.95 2 of them",
        "it was 19 95 2 of them",
    ]
    assert spoken_forms("$20 of 1995") == ["$20 of 1995"]


def test_what_whisper_writes_of_another_is_heard_as_both_and_only_heard() -> None:
    assert heard_forms("3.10 or 19-95") == [
        *("3.10 or 19 to 95", "310 or 19 to 95", "3.10 or 19 95", "310 or 19 95")
    ]
    assert heard_forms("v3.10 4.20 km $4.20") == spoken_forms("v3.10 4.20 km $4.20")
    assert heard_forms("1.1.10 25.10 0.10 555-1234") == ["1.1.10 25.10 0.10 5551234"]
    assert spoken_forms("3.10 or 19-95") == ["3.10 or 19 to 95"]


LONG = 4_400


@pytest.mark.parametrize(
    "text",
    [
        "1" * LONG,
        "1 " * LONG,
        "one " * LONG,
        "double 1 " * LONG,
        "1," * LONG,
        "1." * LONG,
        "٣" * LONG,
        "²" * LONG,
        "$" + "1" * LONG,
        "1/" + "1" * LONG,
        "1" * LONG + "-5",
        "1" * LONG + " percent",
        "9" * LONG + " million",
        "9" * LONG + " hundredth",
        "0." + "1" * LONG + " million",
        "five " + "million " * 500,
        "point " + "five " * 150 + "million",
    ],
    ids=lambda text: text[:12],
)
def test_numbers_that_nobody_says_are_cut(text: str) -> None:
    form = marked_form(text)
    assert marked_form(form) == form
    assert max(len(digits) for digits in re.findall(r"\d+", f"{form} 0")) <= 1_100
    found = word_errors(text, text)
    assert (found.word_errors, found.format_insensitive_word_errors) == (0, 0)


PIECES = (
    "4:30 4.30 4 30 four thirty twenty five oh o point hundred thousand million and a half "
    "quarter past to 3rd third first second nineties 1990s $3.50 $ % 5% percent dollars cents £ "
    "may march 3 2025 of the 31 1/2 3/4 ½ -4 minus negative 0.5 .5 1,000 , . km kHz miles per hour "
    "degrees c f am p.m. a m i u s U.S. o'clock double seven 007 dr. st. it's john's no. # & + = "
    "past five minutes 1998-64 ; . ! — $19.95 "
    "half an 2025-03-01 1-800-555-1234 AT&T ² ٣ II 30 s in. "
    "5-10 555-1234 @ e-mail mm uh ok second ten"
)
SENTENCES = st.lists(st.sampled_from(PIECES.split()), max_size=12).flatmap(
    lambda pieces: st.sampled_from([" ", "", ", "]).map(lambda gap: gap.join(pieces))
)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(SENTENCES | st.text(max_size=30))
def test_a_form_taken_again_is_itself(text: str) -> None:
    form = marked_form(text)
    assert marked_form(form) == form
    assert form == " ".join(form.split())
    assert spoken_form(text) == " ".join(form.replace(",", " ").split())


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.integers(0, 999_999))
def test_every_number_agrees_with_its_words(number: int) -> None:
    assert spoken_form(in_words(number)) == str(number)
    assert spoken_form(f"{number:,}") == str(number)


ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def in_words(number: int) -> str:
    """English for a number below a million, as it is counted."""
    if number < 20:
        return ONES.split()[number]
    if number < 100:
        ten, one = divmod(number, 10)
        return TENS.split()[ten - 2] + (f"-{ONES.split()[one]}" if one else "")
    big, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    above, below = divmod(number, big)
    rest = f" {'and ' if below < 100 else ''}{in_words(below)}" if below else ""
    return f"{in_words(above)} {name}{rest}"
