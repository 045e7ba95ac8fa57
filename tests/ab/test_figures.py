"""Figures, verdicts and tables of comparisons, against values worked by hand."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from ab.clips import TEXTS, raw_arm, raw_row, tone
from ab.compared import judged, pair, result

from speech_assets.ab.advice import MEANING, advice
from speech_assets.ab.figures import MEASURES, ab_figures
from speech_assets.ab.pairs import compare_pair
from speech_assets.ab.tables import ab_table, comparison_table
from speech_assets.ab.verdict import opening, outcome_of, verdicts
from speech_assets.ab.waiting import time_faults
from speech_assets.errors import ConfigError
from speech_assets.quality.resampling import MIN_SENTENCES
from speech_assets.results.result import Result, parse_result, with_content_hash

if TYPE_CHECKING:
    pass


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
    assert (difference.value, difference.n, difference.sentences) == (-8.5, 2, 1)
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


def test_clips_without_audio_are_not_the_same() -> None:
    mute = raw_row(1, file="", samples=0, frames=0, finish_reason="no_audio")
    both_mute = judged(pair(mute, mute), (5, 5), (5, 5))
    shares = [f"same_{name}_share" for name in ("samples", "frames", "bytes", "transcript")]
    figures = figures_of([both_mute, both_mute])
    assert [(figures[name].value, figures[name].n) for name in shares] == [(0.0, 0)] * 4
    alike = raw_row(0, file_sha256="1")
    one_mute = judged(pair(raw_row(1), mute), (5, 5), (5, 5))
    figures = figures_of([judged(pair(alike, alike), (0, 5), (0, 5)), one_mute, both_mute])
    assert [(figures[name].value, figures[name].n) for name in shares] == [(0.5, 2)] * 4
    value = result()
    for name in shares:
        value["figures"][name] = figures[name].as_json()
    assert "Of 8 clips (2 with audio) 1 have as many samples in both arms" in comparison_table(
        value
    )
    for name in shares:
        value["figures"][name] |= {"value": 0.0, "n": 0}
    assert "| 8 | - | - | none |" in ab_table([value])


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


def test_the_detectable_difference_is_of_this_very_comparison() -> None:
    # In every other sentence B has two words of ten more wrong: a deviation of 1/10 over 16.
    rows = [judged(pair(raw_row(n), raw_row(n)), (0, 10), (0, 10)) for n in range(16)]
    for row in rows:
        row["b"]["format_insensitive_word_errors"] = row["sentence_id"] % 2 * 2
    figures = figures_of(rows)
    smallest = figures["smallest_detectable_wer_format_insensitive_less_a"]
    assert smallest.value == pytest.approx(2.8016 * 0.1 / 4, rel=0.03)
    assert (smallest.unit, smallest.n, smallest.sentences) == ("share", 16, 16)
    assert figures["wer_difference"].unit == figures["wer_format_insensitive_a"].unit == "share"
    assert [name for name in figures if name.startswith("smallest")] == [
        "smallest_detectable_wer_format_insensitive_less_a"
    ]


def test_a_clip_that_was_not_spoken_counts_as_words_that_were_not_heard_but_takes_no_time() -> None:
    mute = raw_row(1, file="", samples=0, decode_ms=0.0, finish_reason="no_audio")
    rows = [
        judged(pair(raw_row(0), raw_row(0)), (1, 5), (1, 5)),
        judged(pair(raw_row(1), mute), (0, 5), (5, 5)),
    ]
    figures = figures_of(rows)
    assert (figures["wer_a"].value, figures["wer_b"].value) == (0.1, 0.6)
    assert figures["wer_difference"].value == pytest.approx(0.5)
    assert figures["clips_without_audio_b"].value == 1
    assert figures["same_transcript_share"].value == 0.5
    assert figures["decode_ms_difference"].n == 1
    assert figures["decode_ms_b"].value == 100


def test_the_similarity_to_arm_a_stands_beside_that_of_its_own_clips() -> None:
    def alike(sentence: int, own: float | None, to_a: float | None) -> dict[str, Any]:
        row = pair(raw_row(sentence), raw_row(sentence))
        for letter, value in (("a", own), ("b", to_a)):
            row[letter]["speaker_similarity"] = value
        return row

    figures = figures_of([alike(0, 0.9, 0.7), alike(1, 0.8, 0.8), alike(2, 0.9, None)])
    assert figures["speaker_similarity_a"].value == pytest.approx(0.85)
    assert figures["speaker_similarity_b"].value == pytest.approx(0.75)
    less = figures["speaker_similarity_difference"]
    assert (less.value, less.ci_low, less.ci_high) == pytest.approx((-0.1, -0.2, 0.0))
    assert less.n == 2


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
    figure = {"value": -2.0, "n": 60, "sentences": n, "ci_low": low, "ci_high": high}
    assert outcome_of(figure, less_is_better=less_is_better) == outcome


def test_verdicts_say_what_differs_in_plain_words() -> None:
    said = {verdict.name: verdict for verdict in verdicts(result())}
    assert set(said) == {measure.name for measure in MEASURES}
    assert said["decode_ms"].outcome == "better"
    assert said["decode_ms"].sentence.startswith(
        "codec a clip: B is better: 100 in A, 60.9 in B, B less A -39.1 [-39.6, -38.6] ms"
    )
    assert said["wer"].outcome == "no difference beyond noise"
    assert "20.00 in A, 20.00 in B, B less A +0.00 [+0.00, +0.00] %" in said["wer"].sentence
    voice = said["speaker_similarity"]
    # B's clips are more like A's than two clips of A are: that is no gain of B's.
    assert voice.outcome == "no difference beyond noise"
    assert "is no further from A's than two clips of A are from each other" in voice.sentence
    assert "the same clip in A and B 0.95 alike, two clips of A 0.9" in voice.sentence
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
    assert "| speaker similarity to A | cosine | 0.9 | 0.95 | 0.05 |" in text
    assert "in A, of A's clip and the same sentence with another seed." in text
    row = ab_table([result()]).splitlines()[-1]
    assert row.startswith("| one vs other | A CPU (R) 9000 | 8 | 100% | 100% | none | 0 -> 1 |")
    assert "better: codec a clip; better: codec a second of audio" in row


def test_times_of_a_server_that_waited_for_cores_do_not_count_and_words_do() -> None:
    value = result(waited_s=1.0)
    assert value["figures"]["waited_share_a"]["value"] == 0
    assert value["figures"]["waited_share_b"]["value"] == 0.5
    assert time_faults(value["figures"]) == [
        "the server of arm B waited for a core in 50.0% of its time (limit 25%): other processes "
        "had it"
    ]
    said = {verdict.name: verdict for verdict in verdicts(value)}
    times = {name for name, verdict in said.items() if verdict.outcome == "does not count"}
    assert times == {
        "lm_ms", "lm_ms_per_step", "decode_ms", "decode_ms_per_audio_s", "first_audio_ms",
        "wall_ms", "rtf",
    }  # fmt: skip
    assert "does not count, for the server waited for cores: 100 in A" in said["decode_ms"].sentence
    assert said["wer"].outcome == "no difference beyond noise"
    text = comparison_table(value)
    assert "| -39.6 to -38.6 | 8 | does not count |" in text
    assert "- The times do not count: the server of arm B waited" in text
    row = ab_table([value]).splitlines()[-1]
    assert "100 -> 60.9" not in row
    assert row.count(" (does not count) |") == 3
    assert "its times do not count" in row
    # A few percent are everybody's.
    assert time_faults(result(waited_s=0.05)["figures"]) == []
    assert "does not count" not in comparison_table(result(waited_s=0.05))


def test_an_arm_that_waited_less_than_the_limit_but_more_than_the_other_is_not_compared() -> None:
    assert time_faults(result(waited_s=0.1)["figures"]) == [
        "the server of arm A waited for a core in 0.0% of its time, B's in 9.1% (limit 5% apart): "
        "other processes slowed one more"
    ]


def test_a_result_of_before_cores_were_watched_has_no_fault() -> None:
    rows = [pair(raw_row(), raw_row())]
    assert [name for name in figures_of(rows) if name.startswith("waited")] == []
    assert time_faults(figures_of(rows)) == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (result(), "B is better in codec a clip, codec a second of audio and worse in nothing"),
        (result(decode_ms=140.0), "B is worse in codec a clip, codec a second of audio. Listen to"),
        (result(decode_ms=99.0), "Nothing differs beyond noise"),
        (result(same=True), "Both arms are one configuration"),
        (result(5), "It takes 6 sentences or more to tell"),
        (result() | {"reduced": True}, "It is a reduced run"),
        (result(waited_s=1.0), "The times do not count"),
    ],
)
def test_advice_says_what_the_verdicts_mean_and_what_to_do(
    value: dict[str, Any], says: str
) -> None:
    said = advice(value)
    assert said[0] == MEANING
    assert any(says in sentence for sentence in said)
    assert comparison_table(value).endswith("\n".join(f"- {sentence}" for sentence in said))


def rewritten(value: dict[str, Any], **changed: Any) -> bytes:
    """The file of that result with other contents, hashed as if it had been measured so."""
    names = ("kind", "name", "started_at", "device", "command", "config", "rows", "seeds")
    kept = {name: changed.get(name, value[name]) for name in names}
    figures = result()["figures"] if "figures" not in changed else changed["figures"]
    made = Result(**kept, figures={}).as_json()
    made["figures"] = figures
    return json.dumps(with_content_hash(made)).encode()


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
