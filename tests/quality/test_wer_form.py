"""The form of results of kind `wer`: what table, asset and report read of one is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quality.scores import clip_score
from results.examples import example

from speech_assets.errors import ConfigError
from speech_assets.quality.figures import wer_figures
from speech_assets.results import published
from speech_assets.results.pages import TABLES
from speech_assets.results.result import Figure

CLIPS = [clip_score(0, errors=1), clip_score(1), clip_score(0, seed=2), clip_score(1, seed=2)]
WER: dict[str, Any] = {
    "kind": "wer",
    "name": "embedded-bf16",
    "config": {"base": "embedded-bf16", "asr": "whisper tiny.en"},
    "rows": [clip.as_row() for clip in CLIPS],
    "figures": wer_figures(CLIPS),
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    return tmp_path


def test_a_published_result_is_a_row_of_the_table(repository: Path) -> None:
    path = published.publish(example(**WER), "run.json")
    assert path.is_relative_to(repository / "results" / "wer")
    assert "| embedded-bf16 | A CPU (R) 9000 | 4 | 0 | 2.5% (0.0-5.0) |" in TABLES["wer"]()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"rows": []}, "rows is []"),
        ({"rows": [{**WER["rows"][0], "words": 0}]}, "rows.0.words is 0"),
        ({"rows": [{**WER["rows"][0], "transcript": None}]}, "rows.0.transcript is None"),
        ({"rows": [{**WER["rows"][0], "speaker_similarity": 1.1}]}, "speaker_similarity is 1.1"),
        ({"rows": [{**WER["rows"][0], "speaker_similarity": 0.9}]}, "no figure speaker_similarity"),
        ({"rows": [{k: v for k, v in WER["rows"][0].items() if k != "flags"}]}, "rows.0.flags"),
        ({"rows": [{**WER["rows"][0], "another": 1}]}, "rows.0.another is 1"),
        ({"rows": [{**WER["rows"][0], "word_errors": -1}]}, "rows.0.word_errors is -1"),
        ({"rows": [{**WER["rows"][0], "word_errors": 10**400}]}, "rows.0.word_errors is 1000"),
        ({"figures": {**WER["figures"], "wer": Figure(0.3, "share", 4, 0.0, 0.05)}}, "outside its"),
        ({"figures": {**WER["figures"], "cer": Figure(0.0, "share", 4, 0.01)}}, "outside its"),
        ({"config": {"base": "embedded-bf16"}}, "has no config.asr"),
        ({"figures": {"wer": WER["figures"]["wer"]}}, "no figure wer_format_insensitive"),
    ],
)
def test_what_the_table_needs_is_asked_of_the_file(
    repository: Path, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        published.publish(example(**{**WER, **changed}), "run.json")
    assert says in str(refusal.value)
    assert not (repository / "results").exists()
