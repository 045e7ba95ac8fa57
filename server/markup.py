"""Text as people write it, without what is not said: markup, emoji, control characters, tags.

In: what a chat model, a web page or an SSML author sends. Out: letters, digits and marks, in
paragraphs with a blank line between, and the two things that are no text but are heard: tags of
emotions that the model was trained with, and pauses. docs/protocol.md has the rules as a table.

Every step takes time in proportion to the text, whatever the text is.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import TYPE_CHECKING

from server.links import without_links, without_userinfo

if TYPE_CHECKING:
    from collections.abc import Collection

EMOTIONS = ("laugh", "chuckle", "sigh", "cough", "sniffle", "groan", "yawn", "gasp")
"""Tags that Orpheus was trained with."""

PAUSE = re.compile("\ue000(\\d+)\ue000")
"""A pause in plain text, of so many ms: between characters for private use, which no text keeps."""
_LINE_END = "\ue001"
LONGEST_PAUSE_MS = 10_000

TAG = re.compile(rf"</?[A-Za-z!?][^<>]*>|<\s*/?\s*(?:{'|'.join(EMOTIONS)})\s*/?\s*>", re.IGNORECASE)
"""A tag of whatever language. "a < b" is none: its sign stands alone."""

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SECTION = re.compile(r"<!\[CDATA\[|\]\]>")
_TOKEN = re.compile(r"<\|[^|<>\s]*\|>|<custom_token_\d+>")
_BREAKS = str.maketrans(
    {"\r": "\n", "\v": "\n", "\f": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n\n"}
)
_UNSAID = (
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<script\b", re.IGNORECASE), re.compile(r"</script\s*>", re.IGNORECASE)),
    (re.compile(r"<style\b", re.IGNORECASE), re.compile(r"</style\s*>", re.IGNORECASE)),
)
_NAME = re.compile(r"<\s*/?\s*([A-Za-z][\w:.-]*)")
_ADDRESS = re.compile(r"<[^\s<>]+(?:@|://)[^\s<>]+>")
_ATTRIBUTE = re.compile(r"([\w:-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>/]+))")
_PARAGRAPH_TAGS = frozenset(
    ("p", "div", "section", "article", "blockquote", "ul", "ol", "table", "pre", "hr", "speak")
)
_LINE_TAGS = frozenset(("li", "tr", "dt", "dd", "s", "h1", "h2", "h3", "h4", "h5", "h6", "title"))
_STRENGTHS_MS = {
    "none": 0,
    "x-weak": 0,
    "weak": 250,
    "medium": 400,
    "strong": 700,
    "x-strong": 1_000,
}

_FENCE = re.compile(r"^ ?(?:```|~~~).*$", re.MULTILINE)
_RULE = re.compile(r"^ ?([-*_=]) ?(?:\1 ?){2,}$", re.MULTILINE)
_TABLE_RULE = re.compile(r"^ ?\|? ?:?-{2,}:? ?(?:\|[-: |]*)?$", re.MULTILINE)
_DEFINITION = re.compile(r"^ ?\[[^\[\]\n]+\]: ?\S+.*$", re.MULTILINE)
_HEADING = re.compile(r"^ ?#{1,6} (.*?)[ #]*$", re.MULTILINE)
_QUOTE = re.compile(r"^ ?(?:> ?)+", re.MULTILINE)
_BULLET = re.compile(r"^ ?[-*+\u2022\u2023\u25aa\u25cf\u2013] (?:\[[ xX]\] )?(.*)$", re.MULTILINE)
_NUMBERED = re.compile(r"^ ?(\d{1,3})[.)] (.*)$", re.MULTILINE)
_ROW = re.compile(r"^ ?\|(.*)\| ?$", re.MULTILINE)
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]*\]")
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
# "8)" closes "(ages 5 to 8)" and "<3" is a comparison more often than a face and a heart.
_EMOTICON = re.compile(
    r"(?<!\S)(?:(?:[:;=][-o^']?|8[-o^'])[()\[\]dDpP/|*]+|<3(?=\s*$)|\^_\^|[xX]D)(?!\S)",
    re.MULTILINE,
)
_KEYCAP = re.compile("([0-9#*])\ufe0f?\u20e3")


def plain_text(text: str, tags: Collection[str] = ()) -> str:
    """What of `text` is said, in paragraphs; of tags those named in `tags`, as ``<laugh>``."""
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    text = text.replace("\r\n", "\n").translate(_BREAKS)
    text = _KEYCAP.sub(r"\1", text).translate(_CHARACTERS)
    # Twice: what stood around the marks of a section may be a token without them.
    text = _TOKEN.sub(" ", _without_sections(_TOKEN.sub(" ", text)))
    text = without_userinfo(text)
    for opening, closing in _UNSAID:
        text = _without(text, opening, closing)
    text = _ADDRESS.sub(lambda address: address[0][1:-1], text)
    known = frozenset(tags)
    # The alias of <sub> is said instead of its content, so its tags go first.
    text = re.sub(r"<sub\b([^<>]*)>[^<>]*</sub\s*>", _alias, text, flags=re.IGNORECASE)
    text = TAG.sub(lambda tag: _tag(tag[0], known), text)
    return _tidy(_without_markdown(text))


def without_tags(text: str) -> str:
    """`text` without tags of any kind, for telling whether anything else is there."""
    return TAG.sub(" ", _TOKEN.sub(" ", _SECTION.sub("", text)))


def _without_sections(text: str) -> str:
    """CDATA sections as the text that they hold, in which "<" and ">" are signs.

    A sentence of a longer text may have one end of a section without the other.
    """
    before, *sections = text.split("<![CDATA[")
    kept = [before]
    for section in sections:
        held, _, after = section.partition("]]>")
        kept += [re.sub("[<>]", r" \g<0> ", held), after]
    return "".join(kept).replace("]]>", " ")


def _without(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str:
    """`text` without what stands from each opening to its closing; one that stays open stays."""
    kept: list[str] = []
    at = 0
    while (first := opening.search(text, at)) and (last := closing.search(text, first.end())):
        kept += [text[at : first.start()], " "]
        at = last.end()
    return "".join([*kept, text[at:]])


def _alias(match: re.Match[str]) -> str:
    return f" {_attributes(match[1]).get('alias', match[0])} "


def _attributes(text: str) -> dict[str, str]:
    return {
        name.lower(): double or single or bare
        for name, double, single, bare in _ATTRIBUTE.findall(text)
    }


def _tag(tag: str, known: frozenset[str]) -> str:
    """What is left of a tag: a known emotion, a pause, the end of a paragraph or line, nothing."""
    found = _NAME.match(tag)
    name = found[1].lower() if found else ""
    if name in known:
        # One that is closed like an element is one sound, not two.
        return " " if tag.startswith("</") else f" <{name}> "
    if name == "break":
        ms = _break_ms(_attributes(tag))
        return f"\ue000{ms}\ue000" if ms else " "
    if name in _PARAGRAPH_TAGS:
        return "\n\n"
    if name in _LINE_TAGS:
        return _LINE_END
    if name == "br":
        return "\n"
    # "<b>un</b>likely" is one word.
    inline = name in ("b", "i", "em", "strong", "u", "span", "a", "mark", "small", "sup", "code")
    return "" if inline else ", " if name in ("td", "th") and tag.startswith("</") else " "


def _break_ms(attributes: dict[str, str]) -> int:
    """The length of an SSML break."""
    time = re.fullmatch(r"\+?(\d{1,6}(?:\.\d{1,6})?|\.\d{1,6})(ms|s)", attributes.get("time", ""))
    if time:
        ms = round(float(time[1]) * (1 if time[2] == "ms" else 1_000))
        return min(ms, LONGEST_PAUSE_MS)
    return _STRENGTHS_MS.get(attributes.get("strength", "medium"), _STRENGTHS_MS["medium"])


def _without_markdown(text: str) -> str:
    # One space for many: what follows would take a square of their number.
    text = _FENCE.sub("", re.sub(r"[ \t]+", " ", text))
    text = _TABLE_RULE.sub("", _RULE.sub("\n", text))
    text = _DEFINITION.sub("", text)
    text = _HEADING.sub("\n\n\\1\n\n", text)
    text = _QUOTE.sub("", text)
    text = _BULLET.sub(f"{_LINE_END}\\1{_LINE_END}", text)
    text = _NUMBERED.sub(f"{_LINE_END}\\1, \\2{_LINE_END}", text)
    text = _ROW.sub(lambda row: _LINE_END + ", ".join(_cells(row[1])) + _LINE_END, text)
    text = _FOOTNOTE.sub("", text)
    text = without_links(text)
    text = _ESCAPE.sub("", text)
    text = re.sub(r"(?<=\d) ?\*{1,2} ?(?=\d)", " times ", text)
    text = re.sub(r"[`*]+|~~", "", text)
    return _EMOTICON.sub(" ", text)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|") if cell.strip()]


def _tidy(text: str) -> str:
    """One space for many, a full stop after a line that is whole, blank lines between paragraphs.

    A title is whole, too: a line without a mark that is much shorter than the next one, which
    begins with a capital.
    """
    paragraphs: list[str] = []
    for paragraph in re.split(r"\n ?\n[ \n]*", text):
        lines = [" ".join(line.split(" ")) for line in re.split(r"\n", paragraph)]
        said = ""
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            is_title = (
                3 * len(line) < 2 * len(following)
                and following[:1].isupper()
                and not said
                and any(map(str.isalnum, line))
            )
            said += line + (_LINE_END if is_title else " ")
        parts = [" ".join(part.split()) for part in said.split(_LINE_END)]
        whole = [_ended(part) for part in parts[:-1] if part]
        said = " ".join([*whole, parts[-1]]).strip()
        if said:
            paragraphs.append(said)
    return "\n\n".join([*map(_ended, paragraphs[:-1]), *paragraphs[-1:]])


def _ended(line: str) -> str:
    """A line with a mark at its end."""
    last = line.rstrip("\"'\u201d\u2019)]")[-1:]
    return f"{line}." if last.isalnum() else line


_SAID = {
    "\u00a9": " copyright ", "\u00ae": "", "\u2122": "", "\u2120": "", "\u2116": "No. ",
    "\u00b0": "\u00b0", "\u02da": "\u00b0", "\u2103": "\u00b0C", "\u2109": "\u00b0F",
    "`": "`", "^": "^",
}  # fmt: skip


class _Characters(dict[int, str]):
    """What each character becomes: itself, a space, or nothing. Filled as characters are met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)
        if character in _SAID:
            made = _SAID[character]
        elif character in "\n\t":
            made = character
        # Zero-width and half characters, variation selectors and tags: nothing of a word.
        elif kind in ("Cf", "Cs") or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            made = ""
        elif kind in ("Cc", "Co", "Cn", "So", "Sk", "Zs", "Zl", "Zp", "Me"):
            made = " "  # Emoji and other pictures, too.
        else:
            made = character
        self[code] = made
        return made


_CHARACTERS = _Characters()
