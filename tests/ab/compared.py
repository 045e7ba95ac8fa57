"""Rows and results of a comparison by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ab.clips import raw_arm, raw_row, tone

from speech_assets.ab.figures import ab_figures
from speech_assets.ab.pairs import add_transcripts, compare_pair
from speech_assets.ab.plan import texts_sha256
from speech_assets.results.result import Result

if TYPE_CHECKING:
    from speech_assets.ab.raw import RawRow


def pair(a: RawRow, b: RawRow) -> dict[str, Any]:
    """Both arms' clips of the same tone, of as many samples as their rows say."""
    return compare_pair(a, b, tone(a.samples), tone(b.samples))


def judged(row: dict[str, Any], a: tuple[int, int], b: tuple[int, int]) -> dict[str, Any]:
    """The row with (word errors, words) of each arm; both heard alike where these are equal."""
    sides = {
        letter: {
            "transcript": f"{errors} wrong",
            "word_errors": errors,
            "words": words,
            "format_insensitive_word_errors": 0,
            "format_insensitive_words": words,
            "speaker_similarity": {"a": 0.9, "b": 0.95}[letter],
        }
        for letter, (errors, words) in (("a", a), ("b", b))
    }
    return add_transcripts(row, sides)


def result(
    sentences: int = 8, *, same: bool = False, decode_ms: float = 60.0, waited_s: float = 0.0
) -> dict[str, Any]:
    """A result as JSON: arm B decodes in 60 ms, A in 100, and one of its clips is unhealthy.

    Each clip of B takes a second on cores and waits `waited_s` for one.
    """
    rows = [
        judged(
            pair(
                raw_row(n, ran_s=1.0, waited_s=0.0),
                raw_row(n, decode_ms=decode_ms + n % 3, position=1, ran_s=1.0, waited_s=waited_s),
            ),
            (1, 5),
            (1, 5),
        )
        for n in range(sentences)
    ]
    rows[0]["b"]["flags"] = ["clicks"]
    arms = raw_arm("a", label="one"), raw_arm("b", label="other", memory_mib=1_500.0)
    texts = texts_sha256((row["sentence_id"], row["text"]) for row in rows)
    return Result(
        kind="ab",
        name="one vs other",
        started_at="2026-11-30T10:00:00Z",
        device={"name": "A CPU (R) 9000"},
        command="speech-ab",
        config={
            **{
                arm.arm: {"label": arm.label, "config_sha256": "0", "weights": dict(arm.weights)}
                for arm in arms
            },
            "raw": {letter: {"key": f"ab/{letter}.json", "sha256": "0" * 64} for letter in "ab"},
            "asked": [[row["sentence_id"], row["seed"]] for row in rows],
            "texts_sha256": texts,
            "same_configuration": same,
            "memory_measure": "peak resident memory",
            "speaker_yardstick": "the same sentence with another seed",
        },
        seeds=[1],
        rows=rows,
        figures=ab_figures(rows, *arms),
    ).as_json()
