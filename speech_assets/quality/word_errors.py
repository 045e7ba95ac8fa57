"""Words and characters that a transcript has wrong, counted in two forms.

The strict form is Whisper's English normaliser's, in which word error rates are usually given. It
treats numbers unevenly ("4:30" and "four thirty" differ), so words are counted format-insensitively
as well: in a form that is the same whatever the format (`spoken_forms`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jiwer

from speech_assets.asr.english import whisper_form
from speech_assets.quality.spoken_forms import heard_forms, spoken_forms


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Errors of one transcript: substitutions, deletions and insertions, added up.

    Attributes:
        words: of the reference, in Whisper's form.
        word_errors: at least; more than `words` where words are added.
        format_insensitive_words: of the reference, in its spoken form.
        format_insensitive_word_errors: of them.
        characters: of the reference in Whisper's form, with its spaces.
        character_errors: of them.
        reference: in Whisper's form.
        transcript: in Whisper's form.
    """

    words: int
    word_errors: int
    format_insensitive_words: int
    format_insensitive_word_errors: int
    characters: int
    character_errors: int
    reference: str
    transcript: str


def word_errors(reference: str, transcript: str) -> WordErrors:
    """Errors of `transcript` against what should have been said.

    A transcript without words has every word deleted; a reference without words has every word of
    the transcript inserted.
    """
    strict = whisper_form(reference), whisper_form(transcript)
    said, heard = spoken_forms(reference), heard_forms(transcript)
    return WordErrors(
        words=len(strict[0].split()),
        word_errors=_wrong_words(*strict),
        format_insensitive_words=len(said[0].split()),
        format_insensitive_word_errors=min(
            _wrong_words(*forms) for forms in itertools.product(said, heard)
        ),
        characters=len(strict[0]),
        character_errors=_wrong_characters(*strict),
        reference=strict[0],
        transcript=strict[1],
    )


def _wrong_words(reference: str, transcript: str) -> int:
    if not reference:  # jiwer refuses an empty reference.
        return len(transcript.split())
    return _wrong(jiwer.process_words(reference, transcript))


def _wrong_characters(reference: str, transcript: str) -> int:
    if not reference:
        return len(transcript)
    return _wrong(jiwer.process_characters(reference, transcript))


def _wrong(counted: jiwer.WordOutput | jiwer.CharacterOutput) -> int:
    return counted.substitutions + counted.deletions + counted.insertions
