"""Links without what is not said of them: Markdown's targets, users and passwords.

Brackets may stand in brackets, in a link's text as in its target; what a line does not close stays.
"""

from __future__ import annotations

import re

_MARK = re.compile(r"\\[\[\]()]|!?\[|[\]()\n]")
# Of `https://user:secret@host/`. The second form is of a secret with a "/", "?" or "#" that was not
# encoded: what stands after the first colon is no port.
_USERINFO = re.compile(
    r"(?<=://)(?:[^\s/?#<>\"\[\]]*@"
    r"|[^\s/?#<>\"\[\]:]*:(?!\d{0,5}(?:[/?#\s]|\Z))[^\s<>\"\[\]]{0,1000}@)"
)
_REFERENCE = re.compile(r"\[[^\[\]\n]*\]")


def without_links(text: str) -> str:
    """`text` with each link and image as its text: "[a [b]](c(d))" is "a [b]".

    Takes time in proportion to the text: each mark is looked at twice.
    """
    if "](" not in text and "][" not in text:
        return text
    ends = _ends(text)
    kept: list[str] = []
    opened: list[int] = []  # Where in `kept` the brackets are that this line has not closed yet.
    at = 0
    while mark := _MARK.search(text, at):
        kept += [text[at : mark.start()], mark[0]]
        at = mark.end()
        if mark[0] == "\n":
            opened.clear()
        elif mark[0] in ("[", "!["):
            opened.append(len(kept) - 1)
        elif mark[0] == "]" and opened:
            first = opened.pop()
            reference = _REFERENCE.match(text, at)
            if end := reference.end() if reference else ends.get(at):
                kept[first] = kept[-1] = ""
                at = end
    return "".join([*kept, text[at:]])


def without_userinfo(text: str) -> str:
    """`text` without the users and passwords of its addresses: nobody is to hear those."""
    return _USERINFO.sub("", text)


def _ends(text: str) -> dict[int, int]:
    """Where each parenthesis ends that is closed on its line, by where it begins."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for mark in _MARK.finditer(text):
        if mark[0] == "\n":
            opened.clear()
        elif mark[0] == "(":
            opened.append(mark.start())
        elif mark[0] == ")" and opened:
            ends[opened.pop()] = mark.end()
    return ends
