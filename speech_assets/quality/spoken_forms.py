"""Text in a form that is the same whatever the format: what is said alike is the same.

"4:30", "at 4.30" and "four thirty" are all `430`; "March 3rd, 2025" and "march third twenty twenty
five" `march 3 2025`; "$3.50" and "three dollars and fifty cents" `$3.50`. Word errors counted in it
are words misheard or misspoken, not numerals or spellings chosen otherwise.

What is canonical: numbers are in digits (see `spoken_numbers`), without the reading, so that "four
thirty" and "four hundred thirty" are the same too; a time of day is its digits, without ":", "." or
o'clock; a number with two decimals is a time where it can be one (hours to 24, minutes to 59) and
stands where times do ("at 4.30", "4.30 pm"), else a decimal number, for "version 3.10" is not 310
(`heard_forms` has "4.30" as a time, too); "ten to five" is 450, also where a range is meant that is
said so; money, percentages and units take their sign; contractions are whole, spelling is American
(both tables are openai-whisper's). Numbers with a mark of punctuation between them are two: "two,
one" is not 21. With those marks the form is that of a fixed point (`marked_form`): taken again, it
stays. Numbers of more than 1,000 digits are cut.

Known to be counted as errors though they are none: "5-3" for a difference, dates such as 1/3/2025,
Roman numerals but II, III, VII and VIII after a word, units with ² and ³. Known to be missed: $3.50
and 350 (both are said "three fifty"), a range heard for a time ("five to ten").
"""

from __future__ import annotations

import re
import unicodedata

from speech_assets.asr.english import english_tables
from speech_assets.quality.spoken_numbers import (
    APART,
    FRACTION_DENOMINATORS,
    LONGEST_DIGITS,
    MONTHS,
    digits_of_numbers,
    marked_apart,
)
from speech_assets.quality.spoken_quantities import (
    CURRENCY_NAMES,
    UNIT_WORDS,
    one_form_of_quantities,
)

_MOST_PASSES = 8
"""One or two suffice for speech; each settles what the one before wrote ("4.30" of "point")."""
_FILLERS = r"(?<!\d)(?<!\d )\b(?:hmm|mm|mhm|mmm|uh|um)\b"
_AFTER_DECIMAL = "|".join(
    map(re.escape, ("%", "percent", "per cent", "thousand", "million", "billion", *UNIT_WORDS))
)
# The quotation marks, the slash of fractions, minus and the short dash, by those that are typed.
_ALIKE = str.maketrans("\u2018\u2019\u2044\u2212\u2013", "''/--")
_IS = "it|he|she|that|what|there|here|who|where|how|when|why|let"
_TOO_LONG = re.compile(rf"(?:\d,?){{{LONGEST_DIGITS}}}(?=\d)")
_POWERS = {"\u00b2": " squared ", "\u00b3": " cubed "}
# Those that are no other word, nor letters said by themselves: "an IV", "VI" and "XL" may be.
_ROMAN = {"II": "2", "III": "3", "VII": "7", "VIII": "8"}
_DASHED_SUM = re.compile(r"(?<![\d.-])(\d{1,4})-(\d\d)(?![\d-])")
_DOTTED_TIME = re.compile(
    rf"(?<![\w.$£€])([1-9]|1\d|2[0-4])\.([0-5]\d)(?![\d%]|\.\d)(?! ?(?:{_AFTER_DECIMAL})\b)", re.I
)
_SAME_WORDS = {
    "ok": "okay",
    "alright": "all right",
    "vs": "versus",
    "etc": "et cetera",
}


def spoken_form(text: str) -> str:
    """Canonical words of `text`, with one space between: what it sounds like, roughly."""
    return _unmarked(marked_form(text))


def spoken_forms(text: str) -> list[str]:
    """The spoken form, then those that it has where sums of money are said without their currency.

    "$19.95" is said "nineteen ninety-five", too, which Whisper writes as 1995, 19.95, "19, 95" or
    19-95. In words that are counted none is an error; by themselves they are other numbers.
    """
    form = marked_form(text)
    ways = (r"\1\2", r"\1.\2", r"\1 \2")
    bare = [re.sub(r"[$£€](\d+)\.(\d\d)\b", digits, form) for digits in ways]
    return list(dict.fromkeys(map(_unmarked, (form, *bare))))


def heard_forms(transcript: str) -> list[str]:
    """The spoken forms of what Whisper wrote, with those of what it writes so though another is
    said: "19-95" of "19, 95", and "4.30" of the time.

    Of what should be said they are no forms: there a range is a range, and a decimal number one.
    """
    found: list[str] = []
    for text in (transcript, _DASHED_SUM.sub(r"\1, \2", transcript)):
        for written in (text, _DOTTED_TIME.sub(r"\1:\2", text)):
            found += spoken_forms(written)
    return list(dict.fromkeys(found))


def marked_form(text: str) -> str:
    """The spoken form with a comma, as a word, between numbers that are said apart."""
    for _ in range(_MOST_PASSES):
        made = _once(text)
        if made == text:
            break
        text = made
    return text


def _unmarked(form: str) -> str:
    return " ".join(word for word in form.split() if word != APART)


def _once(text: str) -> str:
    words = marked_apart(_plain(_symbols_as_words(_letters(text))).split())
    spelled = [english_tables().spellings.get(word, word) for word in words]
    same = " ".join(_SAME_WORDS.get(word, word) for word in spelled).split()
    return " ".join(one_form_of_quantities(digits_of_numbers(_joined_letters(same))))


def _letters(text: str) -> str:
    """Lower case without diacritics, with one kind of digit, apostrophe and fraction."""
    text = "".join(
        str(unicodedata.decimal(c)) if c.isdecimal() else _POWERS.get(c, c) for c in text
    )
    text = re.sub(r"(?<=[a-z] )(?:VIII|VII|III|II)\b", lambda m: _ROMAN[m[0]], text)
    text = re.sub(r"[¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]", r" \g<0> ", text)  # "2½" is not 21/2.
    text = unicodedata.normalize("NFKD", text.lower().replace("°", "\0")).replace("\0", "°")
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    text = _TOO_LONG.sub(r"\g<0> ", text)
    text = text.translate(_ALIKE)
    return text.replace("ß", "ss").replace("æ", "ae").replace("œ", "oe").replace("ø", "o")


def _symbols_as_words(text: str) -> str:
    """Signs that are read aloud as words, and times of day as digits in a row."""
    text = re.sub(r"[<\[][^>\]]*[>\]]", " ", text)  # Tags: none is a word.
    text = re.sub(_FILLERS, " ", text)
    text = re.sub(r"\.(com|org|net|io|dev|ai|edu)\b", r" dot \1", text)
    text = re.sub(r"\b[a-z](?:\.[a-z])+\b\.?", lambda m: m[0].replace(".", "") + " ", text)
    text = re.sub(r"\bo ?'? ?clock\b", " ", text)
    # Letters one by one: "a t and t".
    text = re.sub(r"\b([a-z]) ?([a-z]?)&([a-z])\b", r"\1 \2 & \3", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\b(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\b", _iso_date, text)
    text = re.sub(r"(?<=\d) ?in\.(?=\s|$)", " inches", text)
    text = re.sub(r"(?<![\d:.])(\d{1,2}):([0-5]\d)(?::([0-5]\d))?(?![\d:])", _time, text)
    text = re.sub(
        r"(?P<cue>\b(?:at|by|until|till) )?(?<![\w.$£€])(?P<hour>\d{1,2})\.(?P<minute>[0-5]\d)"
        rf"(?![\d%]|\.\d)(?! ?(?:{_AFTER_DECIMAL})\b)(?P<after> ?[ap]m\b)?",
        _time_with_dot,
        text,
    )
    text = re.sub(r"\b1-(?=\d{3}-\d{3}-\d{4}\b)", "1 ", text)
    text = re.sub(r"\b(\d{3})-(\d{3})-(\d{4})\b", r"\1\2\3", text)
    text = re.sub(r"\b(\d{3})-(\d{4})\b", r"\1\2", text)
    # "23-06" is how Whisper writes "twenty-three oh six"; no range goes to a zero.
    text = re.sub(r"(?<=\d)-(?=0\d)", " ", text)
    text = re.sub(r"(?<![\d.])(\d{3,})[-—](\d+)(?![\d.])", _range, text)
    text = re.sub(r"(?<=\d) ?[-—] ?(?=[$£€]?\d)", " to ", text)
    text = re.sub(
        r"([$£€]) ?(\d+(?:\.\d+)?)(?: ?(million|billion|thousand|trillion|bn|m|k)\b)?",
        _amount,
        text,
    )
    text = text.replace("¢", " cents ").replace("%", " percent ")
    text = re.sub(r"\bper cent\b", "percent", text)
    text = re.sub(r"° ?([cf])\b", r" degrees \1", text).replace("°", " degrees ")
    text = re.sub(r"(?<=\d) ?km/h\b", " kph", text)
    text = re.sub(r"(?:# ?|\bno\. ?)(?=\d)", " number ", text)
    text = re.sub(r"\+(?= ?\d)", " plus ", text)
    text = re.sub(r"(?<=\d) ?= ?(?=\d|[a-z])", " equals ", text)
    text = re.sub(r"(?<=\d) ?[*\u00d7] ?(?=\d)", " times ", text)
    text = re.sub(r"(?<![^\s(])-(?=\.?\d)", " minus ", text)
    return text.replace("&", " and ").replace("@", " at ")


def _plain(text: str) -> str:
    """Words, whole and apart, without punctuation but the point and slash within numbers."""
    text = re.sub(r"\be-mail", "email", text)
    text = re.sub(r"(?<=[a-z] )st\b\.?(?=\s*(?:[,;]|$))", "street", text)
    # A possessive cannot be heard; where "is" may be meant, Whisper's table has its say.
    text = re.sub(r"\b([a-z]+)'s\b(?! (?:been|gone|got)\b)", _possessive, text)
    for pattern, words in english_tables().contractions.items():
        text = re.sub(pattern, words, text)
    text = text.replace("'", "")
    text = re.sub(r"(\d+)/(\d+)", _fraction, text)
    text = re.sub(r"(?<![\w.])\.(?=\d)", "0.", text)
    text = re.sub(r"[,;!?—]|[:.](?=\s|$)", f" {APART} ", text)
    text = re.sub(rf"[^\w./{APART}]|_", " ", text)
    text = re.sub(r"(?<!\d)[./]|[./](?!\d)", " ", text)
    text = re.sub(r"(?<=[^\W\d])(?=\d)", " ", text)
    return re.sub(r"(?<=\d)(?=[^\W\d])(?!(?:st|nd|rd|th|s)\b)", " ", text)


def _joined_letters(words: list[str]) -> list[str]:
    """Letters said one by one as one word: "u s" and "us". "a" and "i" alone are words."""
    found: list[str] = []
    at = 0
    while at < len(words):
        end = at
        while end < len(words) and re.fullmatch(r"[a-z]", words[end]):
            end += 1
        letters = words[at:end]
        if len(letters) > 2 or (len(letters) == 2 and not {"a", "i"} & set(letters)):
            found.append("".join(letters))
        else:
            found += letters or words[at : at + 1]
        at = max(end, at + 1)
    return found


def _range(match: re.Match[str]) -> str:
    """ "1914-18" goes to 1918, and "1998-64" nowhere: it is how Whisper writes "1998, 64"."""
    start, end = match[1], match[2]
    completed = start[: -len(end)] + end
    return f"{start} to {end}" if int(completed) > int(start) else f"{start} {APART} {end}"


def _time(match: re.Match[str]) -> str:
    hour, minute, second = match[1], match[2], match[3] or ""
    return f"{int(hour)}{'' if minute == '00' and not second else minute}{second}"


def _time_with_dot(match: re.Match[str]) -> str:
    hour, minute = int(match["hour"]), match["minute"]
    is_likely = match["cue"] or match["after"]
    if not 1 <= hour <= 24 or not is_likely:
        return match[0]
    digits = f"{hour}{'' if minute == '00' else minute}"
    return f"{match['cue'] or ''}{digits}{match['after'] or ''}"


def _iso_date(match: re.Match[str]) -> str:
    return f"{MONTHS[int(match[2]) - 1]} {int(match[3])} {match[1]}"


def _amount(match: re.Match[str]) -> str:
    short = {"bn": "billion", "m": "million", "k": "thousand"}
    multiplier = match[3] or ""
    return f"{match[2]} {short.get(multiplier, multiplier)} {CURRENCY_NAMES[match[1]]}"


def _fraction(match: re.Match[str]) -> str:
    above, below = match[1], match[2]
    is_fraction = int(below) in FRACTION_DENOMINATORS and int(above) < int(below)
    return f"{above}/{below}" if is_fraction else f"{above} {below}"


def _possessive(match: re.Match[str]) -> str:
    return match[0] if match[1] in _IS.split("|") else f"{match[1]}s"
