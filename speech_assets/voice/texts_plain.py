"""Which sentences of a source may be read aloud: plain words, plain marks, nothing crude."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z ,.'?!;:-]+")
_CRUDE = re.compile(
    r"\b("
    # By stem; what nobody wants to hear from a demo.
    r"nigg|negro|jew|nazi|slav(e|er)|whor|slut|bitch|bastard|fuck|shit|piss|fart|damn|hell\b|cock\b"
    r"|sex|porn|rap(e|ed|es|ing|ist)\b|penis|vagina|genital|breast|nude|naked|prostitut|masturbat"
    r"|murder|kill|suicid|corps|tortur|drug|heroin|cocain"
    r")",
    re.IGNORECASE,
)
_ENDS = ".?!"


def plain_sentence(text: str, *, fewest_words: int, most_words: int) -> str | None:
    """`text` as one sentence, its first letter a capital and a mark at its end; None if unfit."""
    text = re.sub(r"\s*--+\s*| - ", ", ", text.replace("_", " "))
    text = re.sub(r"([.?!]),", r"\1", re.sub(r"\s+", " ", text)).strip(" ,;:-")
    count = len(text.split())
    if not fewest_words <= count <= most_words or not _PLAIN.fullmatch(text):
        return None
    if _CRUDE.search(text) or not text[0].isalpha():
        return None
    if text[-1] not in _ENDS:
        text += "."
    return text[0].upper() + text[1:]
