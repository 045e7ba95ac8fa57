"""Figures of scored clips against values worked by hand, and what is said of their noise."""

from __future__ import annotations

import pytest
from quality.scores import clip_score

from speech_assets.quality.figures import difference_figures, wer_figures
from speech_assets.quality.noise import judged, points
from speech_assets.quality.resampling import MIN_SENTENCES
from speech_assets.quality.tables import kinds_table, misheard_table, wer_table
from speech_assets.results.markdown import INVALID, INVALID_MARK
from speech_assets.results.result import Figure


def test_rates_are_over_all_words_and_characters() -> None:
    clips = [clip_score(0, errors=1, words=4), clip_score(1, errors=3, words=12)]
    figures = wer_figures(clips)
    assert figures["wer"] == Figure(0.25, "share", 2, 0.25, 0.25, 2)
    assert figures["wer_format_insensitive"].value == 0.25
    assert figures["cer"].value == pytest.approx(4 / 80)
    assert figures["clips"].value == 2
    assert "dnsmos_overall" not in figures
    assert "wer_seed_spread" not in figures


def test_what_failed_is_counted() -> None:
    clips = [
        clip_score(0, errors=5, flags=("clipping", "dc_offset")),
        clip_score(1, errors=6, spoke=False),
        clip_score(2, errors=10, spoke=False, leading_silence_s=None),
        clip_score(3, leading_silence_s=0.3),
    ]
    figures = wer_figures(clips)
    assert figures["clips_not_spoken"].value == 2
    assert figures["flagged_clips"].value == 1
    assert figures["share_above_half_wer"].value == 0.5  # 6 and 10 of 10, not 5.
    assert figures["leading_silence_s_p50"] == Figure(0.1, "s", 3)
    nothing = wer_figures([clip_score(0, errors=10, leading_silence_s=None)])
    assert "leading_silence_s_p50" not in nothing
    assert not [name for name in nothing if "smallest" in name]
    assert nothing["wer"] == Figure(1.0, "share", 1, sentences=1)


def test_seeds_spread_and_tell_what_the_set_detects() -> None:
    clips = [
        clip_score(number, errors=errors, seed=seed)
        for seed, all_errors in ((1, (1, 3)), (2, (2, 4)), (7, (0, 1)))
        for number, errors in enumerate(all_errors)
    ]
    figures = wer_figures(clips)
    # Of 20 words a seed has 4, 6 and 1 wrong.
    assert figures["wer_seed_spread"] == Figure(0.25, "share", 3)
    assert figures["wer"].value == pytest.approx(11 / 60, abs=1e-5)
    assert figures["smallest_detectable_wer_format_insensitive_difference"].value > 1 / 60


def test_what_can_be_detected_is_of_the_measure_that_decides() -> None:
    # Strictly the seeds differ in every sentence, format-insensitively in none: one word of 80.
    clips = [
        clip_score(
            number, errors=(number + seed) % 2 * 4, seed=seed, format_insensitive_word_errors=1
        )
        for number in range(4)
        for seed in (1, 2)
    ]
    figures = wer_figures(clips)
    assert figures["smallest_detectable_wer_format_insensitive_difference"].value == 1 / 80
    # Half of the sentences are worse by two words of ten, the others by none: a deviation of 1/10.
    ours = [clip_score(n, errors=9, format_insensitive_word_errors=n % 2 * 2) for n in range(16)]
    theirs = [clip_score(n, format_insensitive_word_errors=0) for n in range(16)]
    differences = difference_figures(ours, theirs, "base")
    smallest = differences["smallest_detectable_wer_format_insensitive_less_base"]
    assert smallest.value == pytest.approx(2.8016 * 0.1 / 4, rel=0.03)
    assert (smallest.n, smallest.sentences) == (16, 16)
    assert [name for name in differences if "smallest" in name] == [
        "smallest_detectable_wer_format_insensitive_less_base"
    ]


def test_ratings_are_compared_pair_by_pair() -> None:
    # The clips that only one side could rate are no part of the difference: 2 less 3, not 3 less 3.
    ours = [clip_score(0, dnsmos_overall=2.0), clip_score(0, seed=2, dnsmos_overall=4.0)]
    theirs = [clip_score(0, dnsmos_overall=3.0), clip_score(0, seed=2)]
    less = difference_figures(ours, theirs, "base")
    assert less["dnsmos_overall_less_base"] == Figure(-1.0, "MOS", 1, sentences=1)
    assert less["wer_less_base"].n == 2
    assert "dnsmos_overall_less_base" not in difference_figures(ours[1:], theirs, "base")


def test_a_clip_without_a_rating_is_left_out_of_ratings_alone() -> None:
    clips = [
        clip_score(0, dnsmos_overall=3.0, dnsmos_signal=3.5, dnsmos_noise=4.0),
        clip_score(1, dnsmos_overall=2.0, dnsmos_signal=2.5, dnsmos_noise=3.0),
        clip_score(2, errors=10),
    ]
    figures = wer_figures(clips)
    assert figures["dnsmos_overall"] == Figure(2.5, "MOS", 2, 2.0, 3.0, 2)
    assert figures["wer"].value == pytest.approx(1 / 3, abs=1e-5)


def test_differences_are_of_the_clips_that_both_have() -> None:
    theirs = [clip_score(0, errors=1), clip_score(1, errors=2), clip_score(1, errors=9, seed=2)]
    ours = [
        clip_score(0, errors=2),
        clip_score(1, errors=3),
        clip_score(2, errors=10),
        clip_score(1, errors=0, seed=3),
    ]
    figures = difference_figures(ours, theirs, "base")
    assert figures["wer_less_base"] == Figure(0.1, "share", 2, 0.1, 0.1, 2)
    assert sorted(figures) == [
        *("cer_less_base", "smallest_detectable_wer_format_insensitive_less_base"),
        *("wer_format_insensitive_less_base", "wer_less_base"),
    ]
    # A sentence whose text was changed since is another one.
    assert difference_figures([clip_score(0, text="changed")], theirs, "base") == {}
    with pytest.raises(ValueError, match="no clips"):
        wer_figures([])


def result(figures: dict[str, Figure], name: str = "b", base: str = "a") -> dict:
    return {
        "name": name,
        "reduced": False,
        "started_at": "2026-11-30T10:00:00Z",
        "device": {"name": "A CPU"},
        "config": {"base": base, "asr": "whisper tiny.en"},
        "figures": {name: figure.as_json() for name, figure in figures.items()},
        "rows": [],
    }


@pytest.mark.parametrize(
    ("low", "high", "sentences", "is_within", "says"),
    [
        (-0.01, 0.05, 30, True, "+2.0 points [-1.0, +5.0] over 60 clips: within noise"),
        (0.001, 0.05, 30, False, "+2.0 points [+0.1, +5.0] over 60 clips: worse beyond noise"),
        (-0.05, -0.001, MIN_SENTENCES, True, "better beyond noise"),
        (-0.05, -0.001, MIN_SENTENCES - 1, False, "too few to tell: 5 of at least 6 sentences"),
        (0.001, 0.05, MIN_SENTENCES - 1, False, "too few to tell: 5 of at least 6 sentences"),
        (None, None, 1, False, "+2.0 points over 60 clips; too few to tell: 1 of at least 6"),
    ],
)
def test_beyond_noise_is_an_interval_above_nothing(
    low: float | None, high: float | None, sentences: int, is_within: bool, says: str
) -> None:
    figures = {
        "wer_format_insensitive_less_base": Figure(0.02, "share", 60, low, high, sentences),
        "smallest_detectable_wer_format_insensitive_less_base": Figure(0.031, "share", 60),
        "smallest_detectable_wer_format_insensitive_difference": Figure(0.02, "share", 60),
    }
    noise = judged(result(figures))
    assert noise.is_within == is_within
    assert says in noise.detail
    is_told = "a true difference of 3.1 points is found four times in five" in noise.detail
    assert is_told == (sentences >= MIN_SENTENCES)


def test_nothing_to_compare_with_is_not_within_noise() -> None:
    noise = judged(result({}))
    assert not noise.is_within
    assert "materialize samples of a" in noise.detail
    assert judged(result({}, name="a")).is_within


def test_tables_show_intervals_differences_and_what_was_misheard() -> None:
    ours = [
        clip_score(0, errors=2, text="a|b", transcript="<script>"),
        clip_score(1, errors=0, kind="tongue_twister"),
        clip_score(2, errors=10, transcript="", error="400: no", spoke=False),
    ]
    theirs = [clip_score(0, text="a|b"), clip_score(1, kind="tongue_twister"), clip_score(2)]
    value = result(wer_figures(ours) | difference_figures(ours, theirs, "base"), "embedded-b")
    value["rows"] = [clip.as_row() for clip in ours]
    base = result(wer_figures(theirs), "a")
    text = wer_table([value, base])
    words, differences, sound = (
        [line for line in part.splitlines() if line.startswith("|")]
        for part in text.split("\n\n")[:3]
    )
    assert words[2].startswith("| a | A CPU | 3 | 0 | 0.0% (0.0-0.0) |")
    assert "| 40.0% (0.0-100.0) |" in words[3]
    assert "| base | base |" in differences[2]
    assert "| detectable difference |" in differences[0]
    assert "| +40.0 points [+0.0, +100.0] |" in differences[3]
    assert sound[2].startswith("| a | A CPU | - |")
    assert all(line.count("|") <= 10 for line in text.splitlines())
    assert "say nothing about Orpheus 3B" in text
    assert "say nothing" not in wer_table([base])
    assert "tongue twister | 1 | 10 | 0.0%" in kinds_table(value)
    misheard = misheard_table(value).splitlines()
    assert misheard[2] == "| 2 | 1 | sentence 2 | 400: no | 10 | 10 |  |"
    assert misheard[3].startswith("| 0 | 1 | a\\|b | <script> |")
    assert len(misheard) == 4
    assert misheard_table(base) == "Every word of every clip was understood."
    assert wer_table([]) == "No result is published yet."


def test_figures_of_an_invalid_result_are_marked_and_the_mark_is_explained() -> None:
    clips = [clip_score(0, errors=2, dnsmos_overall=3.0), clip_score(1)]
    value = {**result(wer_figures(clips)), "status": "invalid"}
    text = wer_table([value, result(wer_figures(clips), "a")])
    assert f"10.0% (0.0-20.0) {INVALID_MARK} |" in text
    assert f"3.00 {INVALID_MARK} |" in text
    assert "| 10.0% (0.0-20.0) |" in text  # The other's.
    assert INVALID in text
    assert INVALID not in wer_table([{**value, "status": "complete"}])


def test_a_rate_of_nothing_is_a_dash() -> None:
    clips = [clip_score(0)]
    value = result(wer_figures(clips))
    for figure in value["figures"].values():
        figure |= {"n": 0}
    value["rows"] = [{**clips[0].as_row(), "words": 0, "word_errors": 0}]
    assert "0.0%" not in wer_table([value])
    assert "| 1 | 0 | - | 0.0% | 0 |" in kinds_table(value)


def test_points_are_signed() -> None:
    assert points(Figure(-0.0024, "share", 60, -0.0249, 0.016).as_json()) == (
        "-0.2 points [-2.5, +1.6]"
    )
