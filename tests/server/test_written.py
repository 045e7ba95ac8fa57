"""Written forms in words, by the rules that docs/protocol.md states."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.written import in_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,234 or 1234567", "one thousand two hundred thirty-four or one million two hundred "
         "thirty-four thousand five hundred sixty-seven"),
        ("3.14 and .5 and -5", "three point one four and point five and minus five"),
        ("007", "zero zero seven"),
        ("1" * 19, " ".join(["one"] * 19)),
        ("in 1984, 2005 and 2024", "in nineteen eighty-four, two thousand five and twenty "
         "twenty-four"),
        ("the 1980s, the '90s", "the nineteen eighties, the nineties"),
        ("my 21st and 3rd", "my twenty-first and third"),
        ("mp3 and B2B", "mp three and B two B"),
        ("1/2, 3/4 and 2½", "one half, three quarters and two and one half"),
        ("24/7", "twenty-four seven"),
        ("version v2.0.1", "version two point zero point one"),
        ("3:1 or 16:9", "three to one or sixteen to nine"),
        ("3/4/2025", "March fourth, twenty twenty-five"),
        ("25/12/2025", "December twenty-fifth, twenty twenty-five"),
        ("2025-03-04", "March fourth, twenty twenty-five"),
        ("March 3rd, 2025", "March third, twenty twenty-five"),
        ("on Jan. 5", "on January fifth"),
        ("3 March 2025", "the third of March twenty twenty-five"),
        ("Jan 5-7 or Jan. 5th\u20137th, 2025", "January fifth to seventh or January fifth to "
         "seventh, twenty twenty-five"),
        ("on Jan 5 - 7, and 5-7 January 2025", "on January fifth to seventh, and the fifth to "
         "seventh of January twenty twenty-five"),
        ("the 5 - 7 of May, Jan 30 - Feb 2", "the fifth to seventh of May, January thirtieth to "
         "February second"),
        ("30 Jan\u20132 Feb 2025", "the thirtieth of January to the second of February twenty "
         "twenty-five"),
        ("Jan 5 - 7 people", "January fifth - seven people"),
        ("at 10:30, 10:00 or 9:05", "at ten thirty, ten o'clock or nine oh five"),
        ("10:00 pm or 5pm", "ten p.m. or five p.m."),
        ("22:15 and 22:00", "twenty-two fifteen and twenty-two hundred"),
        ("$3.50", "three dollars and fifty cents"),
        ("$1, $0.99, £1.01", "one dollar, ninety-nine cents, one pound and one penny"),
        ("$2.5 million, €1.2bn", "two point five million dollars, one point two billion euros"),
        ("$10-$20, 20 EUR, 50¢", "ten to twenty dollars, twenty euros, fifty cents"),
        ("12.5% or 10-15%", "twelve point five percent or ten to fifteen percent"),
        ("5 km, 1 km, 60 km/h", "five kilometers, one kilometer, sixty kilometers per hour"),
        ("-3°C, 6 ft, 5 m²", "minus three degrees Celsius, six feet, five square meters"),
        ("25 °C, 1°F, 25ºc, 25 ° C", "twenty-five degrees Celsius, one degree Fahrenheit, "
         "twenty-five degrees Celsius, twenty-five degrees Celsius"),
        ("25°C/77°F in °C. 5°N", "twenty-five degrees Celsius, seventy-seven degrees Fahrenheit in "
         "degrees Celsius. five degrees N"),
        ("20\u201325 °C, 20°-25°, 20°C - 25°C", "twenty to twenty-five degrees Celsius, twenty to "
         "twenty-five degrees, twenty to twenty-five degrees Celsius"),
        ("10-20 people, 1990-95", "ten to twenty people, nineteen ninety to ninety-five"),
        ("won 3-2", "won three two"),
        ("pp. 10\u201312, No. 5, #7, Fig. 3", "pages ten to twelve, number five, number seven, "
         "figure three"),
        ("555-123-4567", "five five five, one two three, four five six seven"),
        ("https://www.example.com/docs/a-b?x=1#y.", "example dot com slash docs slash a dash b."),
        ("https://user:secret@example.org/a", "example dot org slash a"),
        ("bob.smith@example.org", "bob dot smith at example dot org"),
        ("Henry VIII, World War II, Chapter IV", "Henry the eighth, World War two, Chapter four"),
        ("Elizabeth I was here", "Elizabeth I was here"),
        ("Dr. Lee of 10 Elm St. near St. Paul's", "Doctor Lee of ten Elm Street near Saint Paul's"),
        ("on Main St. Yes, at Elm St. John Inc. The end", "on Main Street. Yes, at Elm Saint John "
         "Incorporated. The end"),
        ("e.g. cats, dogs, etc.", "for example cats, dogs, et cetera."),
        ("AT&T + x = 5 < 6", "AT and T plus x equals five less than six"),
        ("Stop!!!! What?!?! Well....", "Stop! What? Well..."),
        ("THIS IS VERY LOUD!", "This is very loud!"),
        ("NASA is UNBELIEVABLE", "NASA is Unbelievable"),
        ("a plain sentence, as it is.", "a plain sentence, as it is."),
    ],
)  # fmt: skip
def test_a_written_form_is_read_by_its_rule(text: str, words: str) -> None:
    assert in_words(text) == words
    assert in_words(words) == words  # What is words already stays.


SIGNS = st.text(alphabet=st.sampled_from("ab AI019.,:;/-\u2013$€%°#@&+=<>!?'()½kms"), max_size=80)


@given(SIGNS)
def test_words_have_no_digits_left_and_single_spaces(text: str) -> None:
    words = in_words(text)
    assert not re.search(r"[0-9]", words)
    assert words == " ".join(words.split())


@given(st.lists(st.sampled_from(["the", "cat", "sat.", "Then,", "well;", "it's", "over", "A"])))
def test_words_alone_stay_as_they_are(words: list[str]) -> None:
    assert in_words(" ".join(words)) == " ".join(words)


FORMS = {
    "the cat": "the cat",
    "Jan 5-7": "January fifth to seventh",
    "Jan. 5\u20137, 2025": "January fifth to seventh, twenty twenty-five",
    "5-7 January": "the fifth to seventh of January",
    "30 Jan - 2 Feb": "the thirtieth of January to the second of February",
    "25 \u00b0C": "twenty-five degrees Celsius",
    "25\u00b0F": "twenty-five degrees Fahrenheit",
    "20-25\u00b0C": "twenty to twenty-five degrees Celsius",
    "\u00b0C": "degrees Celsius",
    "https://user:secret@host.org/": "host dot org",
    "Main St. Yes": "Main Street. Yes",
    "St. John": "Saint John",
}


@given(st.lists(st.sampled_from(sorted(FORMS)), max_size=10))
def test_among_other_forms_no_word_is_lost_or_said_twice(forms: list[str]) -> None:
    said = in_words("; ".join(forms))
    assert said == "; ".join(FORMS[form] for form in forms)
    assert in_words(said) == said


@pytest.mark.parametrize(
    "part",
    ["Jan 5-", "5-7 ", "5 Jan - ", "25\u00b0", "25 \u00b0C-", "\u00b0C/", "://a:b", "St. ", "[a]("],
)
def test_a_long_text_of_any_form_is_read_at_once(part: str) -> None:
    # With a step whose time grows with the square of a text this would not end before the timeout.
    in_words(part * (100_000 // len(part)) + "x")
