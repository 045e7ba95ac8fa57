"""Written forms in words: "Dr. Lee paid $3.50 on 3/4" as it is read out.

The rules are American English's and stated in docs/protocol.md. They take one sentence or a short
text at a time, in this order: addresses, dates, quantities, numerals, abbreviations, signs. What
has been read is not read again otherwise: words stay as they are.
"""

from __future__ import annotations

import re
import unicodedata

from server.abbreviations import LONGEST_LOOK, ends_sentence
from server.addresses import read_addresses
from server.dates import read_dates
from server.number_words import cardinal, decade, fraction, number, ordinal, year
from server.quantities import NUMBER, is_year, read_quantities

_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e\u2189]")
_FRACTION = re.compile(r"(?<![\w./,])(?:(\d{1,4}) )?(\d{1,3})/(\d{1,4})(?![\w/]|[.,]\d)")
_DECADE = re.compile(r"(?<![\w.,])['\u2019]?((?:1[1-9]|20)\d0|[2-9]0)['\u2019]?s\b")
_ORDINAL = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d{1,15})(?:st|nd|rd|th)\b", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:\b[Nn]os?\. ?|#)(?=\d)")
_PAGE = re.compile(r"\b(pp?|[Ff]igs?|[Cc]h|[Ss]ec|[Vv]ol|[Ee]q)\. ?(?=\d)")
_PAGES = {"p": "page", "pp": "pages", "fig": "figure", "figs": "figures", "ch": "chapter",
          "sec": "section", "vol": "volume", "eq": "equation"}  # fmt: skip
_DOTTED = re.compile(r"(?<![\w.,])v?(\d{1,6}(?:\.\d{1,6}){2,8})(?![\w.]\d)")
_RATIO = re.compile(r"(?<![\w:.])(\d{1,4}):(\d{1,4})(?![\d:])")
_MINUS = re.compile(r"(?<![\w)\]])[-\u2212](?=\.?\d)")
_ABOUT = re.compile(r"(?<!\w)[~\u2248] ?(?=\d)")
_NUMERAL = re.compile(rf"(?<!\d)(?:\d{{19,}}|{NUMBER}|\.\d{{1,18}})")

_ROMAN = re.compile(r"\b([A-Z][a-z]+) ([IVX]{1,6})\b(?!')")
_KINGS = frozenset(
    (
        *("Henry", "George", "Edward", "James", "Charles", "William", "Richard", "Elizabeth"),
        *("Louis", "Philip", "Francis", "Frederick", "Alexander", "Nicholas", "Peter", "Catherine"),
        *("Pius", "Benedict", "Leo", "Gregory", "Innocent", "Clement", "Mary", "Napoleon", "Ivan"),
    )
)
_NUMBERED_THINGS = frozenset(
    (
        *("Chapter", "Part", "Volume", "Act", "Scene", "Section", "Book", "Phase", "War", "Type"),
        *("Article", "Appendix", "Class", "Level", "Grade", "Stage", "Title", "Unit", "Step"),
    )
)

_ABBREVIATIONS = {
    "Mr": "Mister", "Mrs": "Missus", "Prof": "Professor", "Sr": "Senior", "Jr": "Junior",
    "Gen": "General", "Col": "Colonel", "Capt": "Captain", "Lt": "Lieutenant", "Sgt": "Sergeant",
    "Rev": "Reverend", "Hon": "Honorable", "Gov": "Governor", "Sen": "Senator", "Mt": "Mount",
    "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Inc": "Incorporated", "Ltd": "Limited",
    "Corp": "Corporation", "Co": "Company", "Jan": "January", "Feb": "February", "Apr": "April",
    "Aug": "August", "Sept": "September", "Oct": "October", "Nov": "November", "Dec": "December",
    "etc": "et cetera", "vs": "versus", "approx": "approximately", "dept": "department",
    "Dept": "Department", "est": "established", "e.g": "for example", "E.g": "For example",
    "i.e": "that is", "I.e": "That is",
}  # fmt: skip
_ABBREVIATION = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, _ABBREVIATIONS))})\.(?!\w)")
_DOCTOR = re.compile(r"(?<![\w.])Dr\. ?(?=[A-Z])")
_SAINT = re.compile(r"(?<![\w.])St\. ?(?=[A-Z])")
_AFTER_NAME = re.compile(r"(?<=\w )(Dr|St)\.")
_SIGNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bw/o\b"), "without"),
    (re.compile(r"\bw/(?=\s|\w)"), "with "),
    (re.compile(r"\b24/7\b"), "twenty-four seven"),
    (re.compile("\u00b1"), " plus or minus "),
    (re.compile("\u00d7"), " times "),
    (re.compile("\u00f7"), " divided by "),
    (re.compile("\u2264|<="), " at most "),
    (re.compile("\u2265|>="), " at least "),
    (re.compile("\u2260|!="), " is not "),
    (re.compile("\u2248"), " about "),
    (re.compile("\u2192|->|=>"), ", "),
    (re.compile("\u00b2"), " squared"),
    (re.compile("\u00b3"), " cubed"),
    (re.compile(r"\s*&\s*"), " and "),
    (re.compile(r"(?<=\w) \+ (?=\w)|(?<=\d)\+(?=\d)|(?<!\w)\+(?=\d)"), " plus "),
    (re.compile(r"(?<=\d)\+"), " plus"),
    (re.compile(r"\s*=+\s*"), " equals "),
    (re.compile(r"(?<=\w) < (?=\w)"), " less than "),
    (re.compile(r"(?<=\w) > (?=\w)"), " greater than "),
    (re.compile(r"(?<!\S)@(?=\w)|(?<=\s)@(?=\s)"), "at "),
    (re.compile(r"(?<!\S)#(?=[^\W\d])"), "hashtag "),
    (re.compile(r"\s*\u00b0C(?!\w)"), " degrees Celsius"),
    (re.compile(r"\s*\u00b0F(?!\w)"), " degrees Fahrenheit"),
    (re.compile(r"\s*\u00b0(?=\w)"), " degrees "),
    (re.compile(r"\s*\u00b0"), " degrees"),
    # Marks in a row are one mark: models stumble over "!!!!".
    (re.compile(r"!*\?[!?]+|!+\?"), "?"),
    (re.compile(r"!!+"), "!"),
    (re.compile(r"\u2026|(?:\. ?){3,}(?<=\.)|\.\.+"), "..."),
    (re.compile(r",(?:\s*,)+"), ","),
)  # fmt: skip
_SHOUTED = re.compile(r"[A-Z]{6,}")


def in_words(text: str) -> str:
    """`text` with what has a spoken form in words, and spaces single."""
    text = _VULGAR.sub(_vulgar, text)
    text = _PAGE.sub(lambda m: f"{_PAGES[m[1].lower()]} ", _NUMBERED.sub("number ", text))
    text = read_quantities(read_dates(read_addresses(text)))
    text = _SIGNS[2][0].sub(_SIGNS[2][1], text)
    text = _FRACTION.sub(_fraction, text)
    text = _DECADE.sub(lambda m: decade(m[1]), text)
    text = _ORDINAL.sub(lambda m: ordinal(m[1]), text)
    text = _DOTTED.sub(lambda m: " point ".join(map(cardinal, m[1].split("."))), text)
    text = _RATIO.sub(r"\1 to \2", text)
    text = _MINUS.sub("minus ", _ABOUT.sub("about ", text))
    text = _ROMAN.sub(_roman, text)
    text = _NUMERAL.sub(_numeral, text)
    text = _AFTER_NAME.sub(_street, _SAINT.sub(_saint, _DOCTOR.sub("Doctor ", text)))
    text = _ABBREVIATION.sub(_abbreviation, text)
    for pattern, words in _SIGNS:
        text = pattern.sub(words, text)
    return " ".join(_quieter(text).split())


def _vulgar(match: re.Match[str]) -> str:
    before = match.string[match.start() - 1 : match.start()]
    said = unicodedata.normalize("NFKC", match[0]).replace("\u2044", "/")
    return f" {said}" if before.isdigit() else said


def _fraction(match: re.Match[str]) -> str:
    whole, above, below = match.groups()
    if not 1 <= int(above) < int(below) <= 100 or int(below) < 2:
        said = f"{cardinal(above)} over {cardinal(below)}"
        return f"{cardinal(whole)} {said}" if whole else said
    said = fraction(above, below)
    return f"{cardinal(whole)} and {said}" if whole else said


def _numeral(match: re.Match[str]) -> str:
    """A number alone: its value, or a year; a space where letters touch it."""
    text, digits = match.string, match[0]
    said = year(digits) if is_year(digits) else number(digits)
    before = " " if text[match.start() - 1 : match.start()].isalpha() else ""
    after = " " if text[match.end() : match.end() + 1].isalpha() else ""
    return f"{before}{said}{after}"


def _roman(match: re.Match[str]) -> str:
    """ "Henry VIII": Henry the eighth; "Chapter IV": Chapter four. One letter may be a word."""
    name, numeral = match[1], match[2]
    is_known = name in _KINGS or name in _NUMBERED_THINGS
    value = _roman_value(numeral)
    if not value or (len(numeral) == 1 and (not is_known or (name in _KINGS and numeral == "I"))):
        return match[0]
    return (
        f"{name} the {ordinal(str(value))}" if name in _KINGS else f"{name} {cardinal(str(value))}"
    )


def _roman_value(numeral: str) -> int:
    """The value of a numeral below 40 as it is properly written; 0 of another."""
    parts = re.fullmatch(r"(X{0,3})(IX|IV|V?I{0,3})", numeral)
    if parts is None:
        return 0
    ones = {"IX": 9, "IV": 4}.get(parts[2])
    if ones is None:
        ones = 5 * parts[2].startswith("V") + parts[2].count("I")
    return 10 * len(parts[1]) + ones


def _abbreviation(match: re.Match[str]) -> str:
    return _ABBREVIATIONS[match[1]] + ("." if _is_end(match) else "")


def _saint(match: re.Match[str]) -> str:
    return match[0] if _is_end(match) else "Saint "


def _street(match: re.Match[str]) -> str:
    return {"Dr": "Drive", "St": "Street"}[match[1]] + ("." if _is_end(match) else "")


def _is_end(match: re.Match[str]) -> bool:
    """Whether an abbreviation's full stop is a sentence's, too."""
    after = match.string[match.end() : match.end() + LONGEST_LOOK]
    return not after.strip() or bool(ends_sentence(match[0].rstrip(". "), after, is_all=True))


def _quieter(text: str) -> str:
    """Shouting in lower case: a sentence of three or more words all in capitals, a long word.

    Voices spell short words of capitals, as acronyms are.
    """
    words = re.findall(r"[^\W\d_]+", text)
    if len(words) >= 3 and text.upper() == text and any(len(word) > 3 for word in words):
        return text.capitalize()
    return _SHOUTED.sub(lambda word: word[0].capitalize(), text)
