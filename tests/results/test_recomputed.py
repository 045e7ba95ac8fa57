"""Figures against their rows: an edit is found although the file was hashed again."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from load.rows import level_row
from quality.scores import clip_score
from results.examples import example

from resources.store import Store
from speech_assets.assets.imported import import_result
from speech_assets.errors import ConfigError
from speech_assets.load.summary import load_figures
from speech_assets.quality.figures import wer_figures
from speech_assets.results import published
from speech_assets.results.recomputed import RECOMPUTED, check_figures
from speech_assets.results.result import parse_result, with_content_hash

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LEVELS = [level_row(1), level_row(1, seed=2), level_row(2, is_passed=False)]
CLIPS = [clip_score(number, errors=number % 3, seed=seed) for number in range(8) for seed in (1, 2)]
MADE: dict[str, dict[str, Any]] = {
    "load_tests": {
        "config": {"sweep": {"duration_s": 60.0}, "client_faults": []},
        "rows": [asdict(row) for row in LEVELS],
        "figures": load_figures(LEVELS),
    },
    "wer": {
        "config": {"base": "embedded-bf16", "asr": "whisper tiny.en"},
        "rows": [clip.as_row() for clip in CLIPS],
        "figures": wer_figures(CLIPS),
    },
}


def made(kind: str) -> dict[str, Any]:
    """A result of that kind as it is read."""
    return json.loads(example(kind=kind, name="embedded-bf16", **MADE[kind]))


@pytest.mark.parametrize("kind", sorted(RECOMPUTED))
def test_figures_that_follow_from_the_rows_are_accepted(kind: str) -> None:
    value = made(kind)
    check_figures(value, "run.json")
    value["figures"]["of_another_run"] = {"value": 1.0, "unit": "", "n": 1}
    value["figures"].pop("first_level_rtf_p50" if kind == "load_tests" else "wer_seed_spread")
    check_figures(value, "run.json")


@pytest.mark.parametrize(
    ("kind", "name", "what", "to"),
    [
        ("load_tests", "max_realtime_streams_generating", "value", 2.0),
        ("load_tests", "max_realtime_streams_generating_with_margin", "value", 1.0),
        ("load_tests", "ttfa_ms_p50", "unit", "s"),
        ("load_tests", "rtf_p50", "n", 5_000),
        ("wer", "wer", "value", 0.09),
        ("wer", "wer_format_insensitive", "ci_low", 0.01),
        ("wer", "cer", "ci_high", 0.99),
        ("wer", "clips_not_spoken", "value", 1),
        ("wer", "clips", "n", 15),
    ],
)
def test_an_edit_that_was_hashed_again_is_refused_wherever_a_result_comes_in(
    kind: str,
    name: str,
    what: str,
    to: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    value = made(kind)
    data = json.dumps(value).encode()
    path = published.publish(data, "run.json")
    edited = copy.deepcopy(value)
    edited["figures"][name][what] = to
    data = json.dumps(with_content_hash(edited)).encode()
    parse_result(data, "run.json")  # Neither form nor hash tells.
    path.write_bytes(data)
    store = Store(str(tmp_path / "store"))
    ways: tuple[Callable[[], object], ...] = (
        lambda: published.read_published(path),
        lambda: published.publish(data, "run.json"),
        lambda: import_result(path, store),
    )
    for way in ways:
        with pytest.raises(ConfigError, match=rf"figures\.{name} is .*, its rows give ") as caught:
            way()
        assert "\n" not in str(caught.value)
    assert not store.keys("results")


def test_a_level_whose_figure_is_not_known_has_none() -> None:
    value = made("load_tests")
    value["rows"][0]["figures"]["device_busy_share"] = {"value": None, "unit": "share", "n": 0}
    check_figures(value, "run.json")
