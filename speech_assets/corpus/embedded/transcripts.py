"""Transcripts of the embedded corpus: which are left out, and what is said where they differ."""

from __future__ import annotations

import re

from speech_assets.errors import CorpusError

# The first rule that matches leaves a prompt out.
LEFT_OUT_RULES = (
    (re.compile(r"\["), "text has [: a sound effect, or a word glossed with its symbol"),
    (re.compile(r"<"), "text has <: a tone"),
    (re.compile(r"^\(\d+ seconds? of silence\)$"), "silence"),
)
# What is said where the transcript writes something else; applied in this order. The note of
# vm-intro speaks of a tone that its file does not hold.
SPOKEN = (
    (r"\(note: .*\)|\(simple tone sound plays\)", ""),
    (r"28\.8", "twenty eight point eight"),
    (r"www\.asterisk\.org", "W W W dot Asterisk dot org"),
    (r"\bH\.323\b", "H three two three"),
    (r"\b3D\b", "three D"),
    (r"\bA\.M\.", "A M"),
    (r"\bP\.M\.", "P M"),
    (r"\*", "star"),
    (r"#", "pound"),
    (r"\bthru\b", "through"),
    (r"\bumute\b", "unmute"),
    (r"\brepresenatives\b", "representatives"),
    (r"\bUn-indentified\b", "Unidentified"),
    (r"\bwitheld\b", "withheld"),
    (r"\bfourtieth\b", "fortieth"),
    (r"\bxray\b", "x-ray"),
    (r"\ba more a amiable\b", "a more amiable"),
    (r"\.\.\.", " "),
)
# Every other number is read digit by digit ("dial five zero zero"): so heard a recognizer that was
# kept from writing digits.
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_WORDS = re.compile(r"[A-Za-z][A-Za-z ,.?!;:'\"\-]*")


def left_out_rule(text: str) -> str | None:
    """The rule that leaves a prompt of this transcript out, or None."""
    return next((rule for pattern, rule in LEFT_OUT_RULES if pattern.search(text)), None)


def spoken(text: str) -> str:
    """`text` as it is said: SPOKEN's table, digits one by one, single blanks.

    Raises:
        CorpusError: something is left that is neither a word nor punctuation.
    """
    said = text
    for pattern, words in SPOKEN:
        said = re.sub(pattern, words, said)
    said = re.sub(r"\d", lambda digit: f" {_DIGITS[int(digit[0])]} ", said)
    said = re.sub(r"\s+([,.?!;:])", r"\1", " ".join(said.split()))
    if not _WORDS.fullmatch(said):
        raise CorpusError(
            f"transcript {text!r} becomes {said!r}, which is not words; add what is said to SPOKEN"
        )
    return said


def slug(text: str, words: int | None = None) -> str:
    """Lower-case words of `text` (the first `words` of them) joined by hyphens."""
    return "-".join(re.findall(r"[a-z0-9]+", text.lower().replace("'", ""))[:words])
