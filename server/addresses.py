"""Web and e-mail addresses and telephone numbers as they are read out."""

from __future__ import annotations

import re

from server.links import without_userinfo
from server.number_words import digit_by_digit

_MAIL = re.compile(r"(?<![\w.+@-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_DOMAINS = "com|org|net|edu|gov|io|dev|ai|app|info|me|co|us|uk|de|fr|eu|ca|tv"
_WEB = re.compile(
    r"(?<![\w@.])(?:(?:https?|ftp)://|www\.)[^\s<>\"]+"
    rf"|(?<![\w@.-])(?:[a-z0-9-]{{1,63}}\.){{1,5}}(?:{_DOMAINS})\b(?!\.?\w)(?:/[^\s<>\"]*)?",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"^(?:https?|ftp)://", re.IGNORECASE)
_SIGNS = {".": "dot", "/": "slash", "-": "dash", "_": "underscore", "@": "at", "+": "plus",
          ":": "colon", "~": "tilde", "%": "percent", "&": "and", "=": "equals"}  # fmt: skip
_PHONE = re.compile(
    r"(?<![\w.-])(?:\+?1[-. ])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\w-])"
    r"|(?<![\w.-])\+\d{1,3}(?:[ -]\d{2,4}){2,5}(?![\w-])"
    r"|(?<![\w.-])\d{3}-\d{4}(?![\w-])"
)


def read_addresses(text: str) -> str:
    """`text` with its addresses as words: "example.com/a" is "example dot com slash a".

    Of a web address host and path are read, not its scheme, user, password, "www.", query and
    fragment. Telephone numbers are read digit by digit, in their groups.
    """
    text = _MAIL.sub(lambda match: _spelled(match[0]), without_userinfo(text))
    text = _WEB.sub(_web, text)
    return _PHONE.sub(_phone, text)


def _web(match: re.Match[str]) -> str:
    address = match[0].rstrip(".,;:!?'\")]}*")
    after = match[0][len(address) :]
    path = re.split(r"[?#]", _SCHEME.sub("", address), maxsplit=1)[0]
    path = re.sub(r"^www\.", "", path, flags=re.IGNORECASE).rstrip("/")
    return _spelled(path) + after


def _spelled(address: str) -> str:
    parts = re.split(r"([^\w]|_)", address)
    return " ".join(_SIGNS.get(part, part) for part in parts if part.strip())


def _phone(match: re.Match[str]) -> str:
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(map(digit_by_digit, re.findall(r"\d+", match[0])))
