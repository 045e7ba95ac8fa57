"""Figures, verdicts and tables of comparisons, against values worked by hand."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from ab.clips import TEXTS, raw_arm, raw_row, tone

from speech_assets.ab.figures import MEASURES, ab_figures
from speech_assets.ab.pairs import add_transcripts, compare_pair
from speech_assets.ab.plan import texts_sha256
from speech_assets.ab.tables import ab_table, comparison_table
from speech_assets.ab.verdict import MIN_SENTENCES, opening, outcome_of, verdicts
from speech_assets.errors import ConfigError
from speech_assets.results.result import Result, parse_result

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
            "loose_word_errors": 0,
            "loose_words": words,
        }
        for letter, (errors, words) in (("a", a), ("b", b))
    }
    return add_transcripts(row, sides)


def figures_of(rows: list[dict[str, Any]], **memory: Any) -> dict[str, Any]:
    return ab_figures(rows, raw_arm("a"), raw_arm("b", **memory))


def test_each_arm_has_its_rate_and_the_difference_is_b_less_a() -> None:
    # Decoding, ms: A 100, 200, B 60, 100 of 2 s and 3 s of audio.
    rows = [
        pair(raw_row(0), raw_row(0, decode_ms=60.0, lm_steps=100)),
        pair(
            raw_row(1, decode_ms=200.0, samples=72_000),
            raw_row(1, decode_ms=100.0, samples=72_000),
        ),
    ]
    figures = figures_of(rows)
    assert figures["decode_ms_a"].value == 150
    assert figures["decode_ms_b"].value == 80
    difference = figures["decode_ms_difference"]
    assert (difference.value, difference.n) == (-70, 2)
    # Of two sentences a resampling has both or one of them twice: -40, -70 or -100.
    assert (difference.ci_low, difference.ci_high) == (-100, -40)
    assert figures["decode_ms_per_audio_s_a"].value == pytest.approx(300 / 5)
    assert figures["decode_ms_per_audio_s_b"].value == pytest.approx(160 / 5)
    assert figures["lm_ms_per_step_a"].value == pytest.approx(2_000 / 400)
    assert figures["lm_ms_per_step_b"].value == pytest.approx(2_000 / 300)
    assert figures["rtf_a"].value == pytest.approx(2.4 / 5)
    assert figures["duration_s_difference"].value == 0


def test_seeds_of_a_sentence_are_no_sentences_of_their_own() -> None:
    rows = [pair(raw_row(0, seed), raw_row(0, seed, decode_ms=90.0 + seed)) for seed in (1, 2)]
    difference = figures_of(rows)["decode_ms_difference"]
    assert (difference.value, difference.n) == (-8.5, 1)
    assert difference.ci_low is None


def test_parity_counts_samples_frames_and_bytes_apart() -> None:
    same = {"file_sha256": "1"}
    rows = [
        pair(raw_row(0, **same), raw_row(0, **same)),
        pair(raw_row(1, **same), raw_row(1, file_sha256="2")),
        pair(raw_row(2, **same), raw_row(2, samples=50_048, frames=25)),
        pair(raw_row(3, **same), raw_row(3, samples=47_000)),
    ]
    figures = figures_of(rows)
    assert figures["same_bytes_share"].value == 0.25
    assert figures["same_samples_share"].value == 0.5
    assert figures["same_frames_share"].value == 0.75
    assert figures["clips_of_other_length"].value == 2
    assert figures["pcm_mean_difference"].n == 2
    assert "relative_error_db" not in figures


def test_differences_of_samples_are_of_clips_of_one_length_by_their_samples() -> None:
    def differing(samples: int, step: int, sentence: int) -> dict[str, Any]:
        other = tone(samples)
        other[50] += step
        rows = raw_row(sentence, samples=samples), raw_row(sentence, samples=samples)
        return compare_pair(*rows, tone(samples), other)

    long = pair(raw_row(2), raw_row(2, samples=50_048))
    figures = figures_of([differing(24_000, 30, 0), differing(48_000, 60, 1), long])
    assert figures["pcm_mean_difference"].value == pytest.approx(90 / 72_000)
    assert figures["pcm_max_difference"].value == 60
    energy = float((tone(24_000) / 32_767.0) @ (tone(24_000) / 32_767.0)) * 3
    error = (30 / 32_767) ** 2 + (60 / 32_767) ** 2
    assert figures["relative_error_db"].value == pytest.approx(10 * math.log10(error / energy))


def test_a_clip_that_was_not_spoken_counts_as_words_that_were_not_heard_but_takes_no_time() -> None:
    mute = raw_row(1, file="", samples=0, decode_ms=0.0, finish_reason="no_audio")
    rows = [
        judged(pair(raw_row(0), raw_row(0)), (1, 5), (1, 5)),
        judged(pair(raw_row(1), mute), (0, 5), (5, 5)),
    ]
    figures = figures_of(rows)
    assert (figures["wer_a"].value, figures["wer_b"].value) == (0.1, 0.6)
    assert figures["wer_difference"].value == pytest.approx(0.5)
    assert figures["clips_not_spoken_b"].value == 1
    assert figures["same_transcript_share"].value == 0.5
    assert figures["decode_ms_difference"].n == 1
    assert figures["decode_ms_b"].value == 100


def test_memory_is_compared_where_both_arms_have_the_same_measure() -> None:
    rows = [pair(raw_row(), raw_row())]
    figures = figures_of(rows, memory_mib=1_240.0)
    assert figures["memory_added_mib"].value == 240
    assert "memory_mib_b" not in figures_of(rows, memory_mib=None)
    assert "memory_mib_b" not in figures_of(rows, memory_measure="device memory")


@pytest.mark.parametrize(
    ("low", "high", "n", "less_is_better", "outcome"),
    [
        (-3.0, -1.0, 30, True, "better"),
        (1.0, 3.0, 30, True, "worse"),
        (1.0, 3.0, 30, None, "more"),
        (-3.0, -1.0, 30, None, "less"),
        (-3.0, 1.0, 30, True, "no difference beyond noise"),
        (0.0, 0.0, 30, True, "no difference beyond noise"),
        (-3.0, -1.0, MIN_SENTENCES - 1, True, "too few sentences"),
        (None, None, 1, True, "too few sentences"),
    ],
)
def test_a_verdict_needs_an_interval_without_zero_and_enough_sentences(
    low: float | None, high: float | None, n: int, less_is_better: bool | None, outcome: str
) -> None:
    figure = {"value": -2.0, "n": n, "ci_low": low, "ci_high": high}
    assert outcome_of(figure, less_is_better=less_is_better) == outcome


def result(sentences: int = 8, *, same: bool = False, decode_ms: float = 60.0) -> dict[str, Any]:
    """A result as JSON: arm B decodes in 60 ms, A in 100, and one of its clips is unhealthy."""
    rows = [
        judged(
            pair(raw_row(n), raw_row(n, decode_ms=decode_ms + n % 3, position=1)), (1, 5), (1, 5)
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
        },
        seeds=[1],
        rows=rows,
        figures=ab_figures(rows, *arms),
    ).as_json()


def test_verdicts_say_what_differs_in_plain_words() -> None:
    said = {verdict.name: verdict for verdict in verdicts(result())}
    assert set(said) == {measure.name for measure in MEASURES}
    assert said["decode_ms"].outcome == "better"
    assert said["decode_ms"].sentence.startswith(
        "codec a clip: B is better: 100 in A, 60.9 in B, B less A -39.1 [-39.6, -38.6] ms"
    )
    assert said["wer"].outcome == "no difference beyond noise"
    assert "20.00 in A, 20.00 in B, B less A +0.00 [+0.00, +0.00] %" in said["wer"].sentence
    few = {verdict.outcome for verdict in verdicts(result(5))}
    assert few == {"too few sentences"}


def test_two_arms_of_one_configuration_are_called_the_noise() -> None:
    value = result(same=True, decode_ms=100.0)
    assert opening(value).endswith("the same configuration: whatever differs is noise.")
    assert "the same configuration; " in ab_table([value])


def test_tables_show_both_arms_their_parity_and_the_verdicts() -> None:
    text = comparison_table(result())
    assert "A is one, B is other: 8 clips of 8 sentences each, seeds 1." in text
    assert "Of 8 clips 8 have as many samples in both arms, 8 as many frames" in text
    assert "Unhealthy in B: 1 (clicks)." in text
    assert "| codec a clip | ms | 100 | 60.9 | -39.1 | -39.6 to -38.6 | 8 | better |" in text
    assert "| peak resident memory | MiB | 1000 | 1500 | 500 | - | 1 | one observation |" in text
    row = ab_table([result()]).splitlines()[-1]
    assert row.startswith("| one vs other | A CPU (R) 9000 | 8 | 100% | 100% | none | 0 -> 1 |")
    assert "better: codec a clip; better: codec a second of audio" in row


def rewritten(value: dict[str, Any], **changed: Any) -> bytes:
    """The file of that result with other contents, hashed as if it had been measured so."""
    names = ("kind", "name", "started_at", "device", "command", "config", "rows", "seeds")
    kept = {name: changed.get(name, value[name]) for name in names}
    figures = result()["figures"] if "figures" not in changed else changed["figures"]
    made = Result(**kept, figures={}).as_json()
    made["figures"] = figures
    del made["content_sha256"]
    return json.dumps(made).encode()


def test_a_result_without_a_row_of_both_arms_for_each_clip_is_refused() -> None:
    value = result()
    parse_result(rewritten(value), "here")
    with pytest.raises(ConfigError, match="its rows are not the clips that were asked for"):
        parse_result(rewritten(value, rows=value["rows"][:-1]), "here")
    one_armed = [{k: v for k, v in row.items() if k != "b"} for row in value["rows"]]
    with pytest.raises(ConfigError, match=r"has no rows\.0\.b"):
        parse_result(rewritten(value, rows=one_armed), "here")
    other = [{**row, "text": TEXTS[0]} for row in value["rows"]]
    with pytest.raises(ConfigError, match="not of the sentences"):
        parse_result(rewritten(value, rows=other), "here")
    without = {**value["config"], "raw": {"a": value["config"]["raw"]["a"]}}
    with pytest.raises(ConfigError, match=r"has no config\.raw\.b"):
        parse_result(rewritten(value, config=without), "here")
