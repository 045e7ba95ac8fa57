"""A stored result beside those before it: which count, what is said, what is worse."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from history.runs import DEVICE, PRESET, SWEEP, keep, load_run, rows_of, speed_run, wer_run

from resources.store import Store
from speech_assets.errors import ConfigError
from speech_assets.history.comparable import earlier
from speech_assets.history.judgement import judge
from speech_assets.results.result import result_key

if TYPE_CHECKING:
    from pathlib import Path

GOOD, BAD = rows_of(100.0), rows_of(300.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_the_newest_result_is_judged_by_the_one_before_it(store: Store) -> None:
    keep(store, load_run(1, GOOD), load_run(2, BAD))
    judged = judge(store, "load_tests", PRESET)
    assert "worse since 2026-11-01T10:00:00Z beyond noise:" in judged.text
    assert "- ttfa_ms_p50 at generating 1: 300 ms, before 100 ms (noise 25 ms" in judged.text
    assert judged.compared_runs == 1
    assert "| ttfa_ms_p50 at generating 1 | 100 | 200 | 300 | 300 | ms | 2 |" in judged.table


@pytest.mark.parametrize(("sentences", "can_tell"), [(3, False), (5, False), (6, True)])
def test_few_sentences_tell_nothing_and_it_is_said(
    store: Store, sentences: int, can_tell: bool
) -> None:
    keep(store, wer_run(1, [1] * 20), wer_run(2, [1] * sentences))
    judged = judge(store, "wer", PRESET)
    assert judged.can_tell == can_tell
    assert (f"too few sentences to tell ({sentences})" in judged.text) != can_tell
    assert ("nothing is worse since" in judged.text) == can_tell


def test_a_first_run_can_tell_nothing(store: Store) -> None:
    keep(store, wer_run(1, [1] * 20))
    judged = judge(store, "wer", PRESET)
    assert (judged.found, judged.can_tell) == ((), False)
    assert "nothing to compare with" in judged.text


def test_the_history_has_shares_in_percent(store: Store) -> None:
    keep(store, wer_run(1, [1] * 20), wer_run(2, [2] * 20))
    assert "| wer | 10 | 15 | 20 | 20 | % | 2 |" in judge(store, "wer", PRESET).table


def test_a_result_that_does_not_count_is_not_judged(store: Store) -> None:
    keep(store, load_run(1, GOOD), load_run(2, BAD, status="invalid"))
    judged = judge(store, "load_tests", PRESET)
    assert judged.found == ()
    assert judged.text.endswith("not judged, for it is invalid")


def test_nothing_worse_is_said_too(store: Store) -> None:
    keep(store, load_run(1, BAD), load_run(2, GOOD))
    judged = judge(store, "load_tests", PRESET)
    assert judged.found == ()
    assert "nothing is worse since 2026-11-01T10:00:00Z" in judged.text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"reduced": True}, "it was shortened"),
        ({"status": "invalid"}, "its status is invalid"),
        ({"config": {"client_faults": ["late"]}}, "its client was late"),
        ({"config": {"sweep": {**SWEEP, "duration_s": 30.0}}}, "measured otherwise (sweep)"),
        ({"device": {**DEVICE, "cores": 64}}, "another device (cores 64)"),
    ],
)
def test_a_run_that_was_measured_otherwise_judges_nothing_and_why_is_said(
    store: Store, changed: dict, why: str
) -> None:
    keep(store, load_run(1, GOOD, **changed), load_run(2, BAD))
    judged = judge(store, "load_tests", PRESET)
    assert judged.found == ()
    assert judged.text.endswith(
        f"nothing to compare with yet.\nNot compared with 2026-11-01T10:00:00Z: {why}."
    )


def test_a_full_run_judges_no_reduced_one(store: Store) -> None:
    keep(store, load_run(1, GOOD), load_run(2, BAD, reduced=True))
    judged = judge(store, "load_tests", PRESET)
    assert judged.found == ()
    assert "it was not shortened" in judged.text


def test_an_older_comparable_run_is_found_behind_one_that_is_not(store: Store) -> None:
    keep(store, load_run(1, GOOD), load_run(2, BAD, reduced=True), load_run(3, BAD))
    judged = judge(store, "load_tests", PRESET)
    assert "worse since 2026-11-01T10:00:00Z" in judged.text
    assert "Not compared with 2026-11-02T10:00:00Z: it was shortened." in judged.text


def test_results_of_another_device_or_preset_are_not_looked_at(store: Store) -> None:
    other = load_run(2, GOOD, device={"name": "A GPU", "cores": 2})
    keep(store, other, load_run(1, GOOD, name="other"), load_run(3, BAD))
    assert judge(store, "load_tests", PRESET).text.endswith("nothing to compare with yet.")


def test_weights_settings_and_versions_are_compared_across_and_named(store: Store) -> None:
    keep(
        store,
        load_run(1, GOOD, config={"weights": {"model": "a"}, "settings": {"head": "full"}}),
        load_run(
            2,
            BAD,
            config={"weights": {"model": "b"}, "settings": {"head": "audio"}},
            software={"torch": "2.14.0"},
            git={"commit": "b" * 40, "dirty": False},
        ),
    )
    assert (
        "Changed since: the preset's settings, the preset's weights, torch 2.13.0 -> 2.14.0, "
        "commit aaaaaaaaaaaa -> bbbbbbbbbbbb." in judge(store, "load_tests", PRESET).text
    )


def test_a_result_whose_client_was_late_is_not_judged(store: Store) -> None:
    keep(store, load_run(1, GOOD), load_run(2, BAD, config={"client_faults": ["late"]}))
    judged = judge(store, "load_tests", PRESET)
    assert judged.found == ()
    assert "not judged, for its client was late" in judged.text


def test_a_damaged_earlier_result_is_named_and_passed_over(store: Store) -> None:
    keep(store, speed_run(1, 100.0), speed_run(2, 100.0), speed_run(3, 50.0))
    [damaged] = [key for key in store.keys("results") if "20261102" in key]
    store.write_bytes(damaged, store.read_bytes(damaged).replace(b'"value": 100.0', b'"value": 1'))
    judged = judge(store, "decode_speed", PRESET)
    assert "worse since 2026-11-01T10:00:00Z" in judged.text
    assert "the file was edited" in judged.text


def test_another_recogniser_judges_nothing(store: Store) -> None:
    keep(store, wer_run(1, [1] * 20, config={"asr": "whisper large"}), wer_run(2, [9] * 20))
    judged = judge(store, "wer", PRESET)
    assert judged.found == ()
    assert "measured otherwise (asr)" in judged.text


def test_the_last_eight_runs_are_looked_at_oldest_first(store: Store) -> None:
    keep(store, *(speed_run(day, 100.0) for day in range(1, 13)))
    found = earlier(store, speed_run(12, 100.0))
    days = [value["started_at"][8:10] for value in found.results]
    assert days == ["04", "05", "06", "07", "08", "09", "10", "11"]


def test_a_result_of_the_future_hides_nothing_and_is_named(store: Store) -> None:
    now = load_run(2, BAD)
    keep(store, load_run(1, GOOD), load_run(1, BAD, started_at="2099-01-01T10:00:00Z"), now)
    judged = judge(store, "load_tests", PRESET, result_key(now))
    assert "worse since 2026-11-01T10:00:00Z beyond noise:" in judged.text
    assert "Not compared with 2099-01-01T10:00:00Z: it lies in the future; delete it" in judged.text
    assert judged.compared_runs == 1


def test_a_result_made_in_the_future_is_judged_by_those_that_are_not_and_it_is_said(
    store: Store,
) -> None:
    now = load_run(2, BAD, started_at="2099-02-01T10:00:00Z")
    keep(store, load_run(1, GOOD), load_run(1, BAD, started_at="2099-01-01T10:00:00Z"), now)
    judged = judge(store, "load_tests", PRESET, result_key(now))
    assert "worse since 2026-11-01T10:00:00Z beyond noise:" in judged.text
    assert "It lies in the future: correct the clock." in judged.text


def test_a_result_that_was_started_later_is_named(store: Store) -> None:
    now = load_run(2, BAD)
    keep(store, load_run(1, GOOD), now, load_run(3, BAD))
    text = judge(store, "load_tests", PRESET, result_key(now)).text
    assert "Not compared with 2026-11-03T10:00:00Z: it was started after this one." in text


def test_a_result_that_is_gone_is_named(store: Store) -> None:
    with pytest.raises(ConfigError, match="which was to be judged, is not there; measure it again"):
        judge(store, "load_tests", PRESET, result_key(load_run(2, BAD)))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"flags": None}, "rows.0.flags is None"),
        ({"flags": [1]}, "rows.0.flags.0 is 1"),
        ({"later": 1}, "rows.0.later is 1"),
        ({"word_errors": -1}, "rows.0.word_errors is -1"),
        ({"format_insensitive_word_errors": -1}, "rows.0.format_insensitive_word_errors is -1"),
        ({"word_errors": 10**400}, "rows.0.word_errors is 1000"),
        ({"character_errors": "1"}, "rows.0.character_errors is '1'"),
        ({"characters": 0}, "rows.0.characters is 0"),
        ({"dnsmos_overall": "good"}, "rows.0.dnsmos_overall is 'good'"),
        ({"dnsmos_overall": 10**400}, "rows.0.dnsmos_overall is 1000"),
    ],
)
def test_rows_that_cannot_be_read_are_not_compared_and_why_is_said(
    store: Store, changed: dict, why: str
) -> None:
    odd = wer_run(2, [2] * 20)
    odd["rows"][0] |= changed
    keep(store, wer_run(1, [1] * 20), odd, wer_run(3, [9] * 20))
    judged = judge(store, "wer", PRESET)
    assert "worse since 2026-11-01T10:00:00Z beyond noise:" in judged.text
    place = store.path(result_key(odd))
    assert re.search(f"^Not compared with {place}: {re.escape(why)}", judged.text, re.MULTILINE)


def test_rows_without_what_they_must_have_are_not_compared(store: Store) -> None:
    odd = wer_run(1, [1] * 20)
    del odd["rows"][3]["flags"]
    keep(store, odd, wer_run(2, [9] * 20))
    text = judge(store, "wer", PRESET).text
    assert f"Not compared with {store.path(result_key(odd))} has no rows.3.flags" in text


def test_levels_without_a_figure_and_a_commit_that_is_no_text_are_compared(store: Store) -> None:
    bare = [replace(row, figures={}) for row in GOOD]
    one = load_run(1, bare, git={"commit": None}, device={**DEVICE, "driver": 5})
    figures = load_run(1, GOOD)["figures"]
    other = load_run(2, bare, git={"commit": ["x"]}, device={**DEVICE, "driver": {}})
    keep(store, {**one, "figures": figures}, {**other, "figures": figures})
    text = judge(store, "load_tests", PRESET).text
    assert "nothing is worse since" in text
    assert "driver 5 -> {}, commit None -> ['x']" in text


def test_a_result_of_another_kind_in_its_place_is_not_compared(store: Store) -> None:
    stray = load_run(1, GOOD)
    keep(store, stray, wer_run(2, [1] * 20))
    store.write_bytes(result_key(wer_run(1, [1])), store.read_bytes(result_key(stray)))
    assert "it is of kind load_tests" in judge(store, "wer", PRESET).text


def test_without_a_result_there_is_nothing_to_judge(store: Store) -> None:
    assert judge(store, "wer", PRESET).text == (
        "embedded-bf16: there is no result yet; materialize wer of it first"
    )
