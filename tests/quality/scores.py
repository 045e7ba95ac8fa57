"""Scores of clips by hand."""

from __future__ import annotations

from typing import Any

from speech_assets.quality.clip_scores import ClipScore


def clip_score(number: int = 0, *, errors: int = 0, words: int = 10, **changed: Any) -> ClipScore:
    """A clip of ten words that was understood, with changes."""
    given: dict[str, Any] = {
        "sentence_id": number,
        "kind": "short",
        "seed": 1,
        "text": f"sentence {number}",
        "transcript": "words",
        "words": words,
        "word_errors": errors,
        "format_insensitive_words": words,
        "format_insensitive_word_errors": errors,
        "characters": 5 * words,
        "character_errors": errors,
        "seconds": 3.0,
        "finish_reason": "stop",
        "spoke": True,
        "leading_silence_s": 0.1,
        "flags": (),
        **changed,
    }
    return ClipScore(**given)
