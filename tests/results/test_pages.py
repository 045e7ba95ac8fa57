"""Results and pages: a page shows what a file holds, and a file that was edited is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speech_assets.corpus.shards import ARCHIVE_SCHEMA
from speech_assets.errors import ConfigError
from speech_assets.results import published
from speech_assets.results.__main__ import main
from speech_assets.results.pages import TABLES, render_page
from speech_assets.results.result import Figure, Result, read_result
from speech_assets.results.tables import tokenize_table

if TYPE_CHECKING:
    from pathlib import Path


def example(**changed: Any) -> dict[str, Any]:
    result = Result(
        kind="tokenize",
        name="snac-5.1M-abc",
        started_at="2026-11-29T10:00:00Z",
        device={"name": "A CPU (R) 9000"},
        command="python -m speech_assets.work.bench_tokenize",
        config={"codec": "snac-5.1M-abc", "shards": 8},
        rows=[{"round": 0}],
        figures={
            "hours_per_min": Figure(1.234, "h/min", 3, 1.2, 1.3),
            "encoder_hours_per_min": Figure(1.3, "h/min"),
            "share_of_encoder": Figure(0.95, "ratio"),
            "agreement": Figure(1.0, "share"),
            "device_busy_share": Figure(0.9, "share"),
            "peak_memory_gib": Figure(0.5, "GiB"),
        },
    )
    return {**result.as_json(), **changed}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    (tmp_path / "README.md").write_text(
        "# Page\n<!-- results: tokenize -->\nold\n<!-- /results -->\nafter\n"
    )
    return tmp_path


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_a_published_result_is_what_the_page_shows(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(repository / "run.json", example())
    assert main(["publish", str(source)]) == 0
    assert (
        repository / "results/tokenize/a-cpu-r-9000/snac-5-1m-abc/20261129100000.json"
    ).read_bytes() == source.read_bytes()
    assert main(["check"]) == 1
    assert "README.md disagrees with results/" in capsys.readouterr().out
    assert main(["render"]) == 0
    text = (repository / "README.md").read_text()
    assert "| A CPU (R) 9000 | snac-5.1M-abc | 1.23 | 1.3 | 0.95 | 100.000% |" in text
    assert text.endswith("<!-- /results -->\nafter\n")
    assert main(["check"]) == 0
    (repository / "README.md").write_text(text.replace("1.23", "9.99"))
    assert main(["check"]) == 1


def test_the_newest_run_of_a_configuration_is_shown(repository: Path) -> None:
    for day, value in ((28, 5.0), (29, 7.0)):
        made = example(started_at=f"2026-11-{day}T10:00:00Z")
        made["figures"]["hours_per_min"]["value"] = value
        published.publish(write(repository / f"{day}.json", made))
    table = tokenize_table(published.of_kind("tokenize"))
    assert "| 7 |" in table
    assert "| 5 |" not in table


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"config": {"codec": "another"}}, "config_sha256 is not that of its config"),
        ({"schema_version": 99}, "schema version 99"),
        ({"figures": {"hours_per_min": 3}}, "figure hours_per_min is 3"),
        ({"figures": {"hours_per_min": {"value": float("nan")}}}, "must be finite"),
        ({"figures": {"hours_per_min": {"value": True}}}, "must have a number as value"),
        ({"figures": []}, "must name at least one"),
        ({"figures": {}}, "must name at least one"),
        ({"started_at": ""}, "started_at is ''"),
        ({"started_at": 5}, "started_at is 5"),
        ({"name": "///"}, "name is '///'"),
        ({"device": "a CPU"}, "device.name is None"),
        ({"kind": ""}, "kind is ''"),
    ],
)
def test_a_file_that_is_not_a_result_is_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_result(write(tmp_path / "run.json", example(**changed)))


def test_a_damaged_or_incomplete_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigError, match=r"broken\.json is not a result file"):
        read_result(tmp_path / "broken.json")
    with pytest.raises(ConfigError, match=r"it has no .*figures"):
        read_result(write(tmp_path / "short.json", {"kind": "tokenize"}))
    with pytest.raises(ConfigError, match="is not a result file"):
        read_result(tmp_path / "absent.json")


def test_only_complete_results_are_published_and_only_below_results(repository: Path) -> None:
    with pytest.raises(ConfigError, match="status is 'failed'"):
        published.publish(write(repository / "run.json", example(status="failed")))
    target = published.publish(write(repository / "run.json", example(kind="../../evil")))
    assert target.is_relative_to(repository / "results")


def test_a_result_without_the_figures_of_its_table_is_named(repository: Path) -> None:
    made = example()
    del made["figures"]["agreement"]
    published.publish(write(repository / "run.json", made))
    with pytest.raises(ConfigError, match="has no figure agreement"):
        tokenize_table(published.of_kind("tokenize"))


def test_a_page_with_an_unknown_table_or_an_open_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="no table 'nothing'"):
        render_page("<!-- results: nothing -->\n<!-- /results -->", TABLES)
    with pytest.raises(ConfigError, match="has no '<!-- /results -->'"):
        render_page("<!-- results: tokenize -->\n", TABLES)
    with pytest.raises(ConfigError, match="or the other way round"):
        render_page("<!-- /results -->", TABLES)
    with pytest.raises(ConfigError, match="or is not written so exactly"):
        render_page("<!--results: tokenize-->\n<!-- /results -->", TABLES)


def test_the_benchmark_writes_a_result_of_real_runs(
    tmp_path: Path, short_rows: list[dict[str, Any]]
) -> None:
    for name, row in enumerate(short_rows[:8]):
        table = pa.Table.from_pylist([row], ARCHIVE_SCHEMA)
        pq.write_table(table, tmp_path / f"train-{name}.parquet")
    (tmp_path / "profiles.toml").write_text(
        """
        [corpora.eight]
        kind = "parquet"
        path = "."
        splits = { train = "train-*.parquet" }
        shard_rows = 1
        [profiles.eight]
        corpus = "eight"
        codec = "embedded"
        """
    )
    environment = {
        **os.environ,
        "SPEECH_PROFILES": str(tmp_path / "profiles.toml"),
        "SPEECH_PROFILE": "eight",
    }
    command = [sys.executable, "-m", "speech_assets.work.bench_tokenize", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--without-dagster", "--out", str(tmp_path / "out")],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "out").rglob("*.json")
    made = read_result(path)
    assert made["config"]["shards"] == 8
    assert made["figures"]["agreement"]["value"] == 1.0
    row = made["rows"][0]
    share = made["figures"]["share_of_encoder"]["value"]
    assert share == pytest.approx(row["encoder_s"] / row["backfill_s"])
    few = subprocess.run(
        [*command, "--shards", "7"], env=environment, check=False, capture_output=True, text=True
    )
    assert few.returncode == 2
    assert "7 shards are too few" in few.stderr
