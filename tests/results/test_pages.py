"""Results and pages: a page shows what a file holds, and a file that was edited is refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from results.examples import FIGURES, example

from speech_assets.corpus.shards import ARCHIVE_SCHEMA
from speech_assets.errors import ConfigError
from speech_assets.results import published
from speech_assets.results.__main__ import main
from speech_assets.results.pages import TABLES, render_page
from speech_assets.results.result import Figure, read_result
from speech_assets.results.tables import tokenize_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    (tmp_path / "README.md").write_text(
        "# Page\n<!-- results: tokenize -->\nold\n<!-- /results -->\nafter\n"
    )
    return tmp_path


def test_a_published_result_is_what_the_page_shows(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = repository / "run.json"
    source.write_bytes(example())
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
        figures = {**FIGURES, "hours_per_min": Figure(value, "h/min")}
        published.publish(example(started_at=f"2026-11-{day}T10:00:00Z", figures=figures), "run")
    table = tokenize_table(published.of_kind("tokenize"))
    assert "| 7 |" in table
    assert "| 5 |" not in table


def test_a_full_run_is_shown_before_a_newer_one_that_was_reduced(repository: Path) -> None:
    for day, is_reduced in ((27, False), (28, False), (29, True)):
        published.publish(example(started_at=f"2026-11-{day}T10:00:00Z", reduced=is_reduced), "x")
    [shown] = published.of_kind("tokenize")
    assert shown["started_at"] == "2026-11-28T10:00:00Z"
    short = {"name": "short", "reduced": True}
    published.publish(example(**short, started_at="2026-11-27T10:00:00Z"), "x")
    published.publish(example(**short, started_at="2026-11-29T10:00:00Z"), "x")
    shown = [result["started_at"] for result in published.of_kind("tokenize")]
    assert shown == ["2026-11-29T10:00:00Z", "2026-11-28T10:00:00Z"]


def test_only_complete_results_of_a_kind_that_a_page_shows_are_published(repository: Path) -> None:
    with pytest.raises(ConfigError, match=r"run: status is 'invalid', .*measure it again"):
        published.publish(example(status="invalid"), "run")
    with pytest.raises(ConfigError, match=r"run: kind is '\.\./\.\./evil'"):
        published.publish(example(kind="../../evil"), "run")
    with pytest.raises(ConfigError, match="no page shows results of kind 'evil'; those shown are"):
        published.publish(example(kind="evil"), "run")
    assert not (repository / "results").exists()


def test_a_published_file_that_was_put_there_by_hand_is_refused(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = published.publish(example(), "run")
    assert main(["render"]) == 0

    def refusal() -> str:
        assert main(["check"]) == main(["render"]) == 2
        *_, line = capsys.readouterr().err.splitlines()
        return line

    copy = path.with_name("copy.json")
    copy.write_bytes(path.read_bytes())
    assert f"{copy}: by its kind, device, name and started_at it belongs in {path}" in (
        refusal().replace("in results/", f"in {repository}/results/")
    )
    copy.unlink()
    path.write_bytes(example(status="invalid"))
    assert "status is 'invalid'" in refusal()
    value = json.loads(example())
    value["figures"]["hours_per_min"]["value"] = 99.0
    path.write_text(json.dumps(value))
    assert "content_sha256 is not that of its content: the file was edited" in refusal()
    del value["content_sha256"]
    path.write_text(json.dumps(value))
    assert "has no content_sha256" in refusal()


def test_every_file_published_before_hashes_is_there_and_unchanged() -> None:
    found = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in _without_hash()}
    assert set(found) == set(published.BEFORE_HASHES)
    for path in found.values():
        published.read_published(path)


def _without_hash() -> list[Path]:
    paths = published.PUBLISHED.rglob("*.json")
    return [path for path in paths if "content_sha256" not in json.loads(path.read_bytes())]


def test_a_result_from_the_future_is_not_published(repository: Path) -> None:
    with pytest.raises(ConfigError, match=r"started_at is 9998-.*more than a day ahead"):
        published.publish(example(started_at="9998-11-29T10:00:00Z"), "run")
    assert not (repository / "results").exists()


def test_no_text_of_a_result_breaks_a_page(repository: Path) -> None:
    config = {"codec": "a|b\r\nc\u2028d <!-- /results -->\n<!-- results: server -->"}
    published.publish(
        example(name="a|b <!-- /results -->", config=config, device={"name": "x | --> <!--"}), "run"
    )
    assert main(["render"]) == 0
    assert main(["check"]) == 0
    [row] = [line for line in (repository / "README.md").read_text().splitlines() if "1.23" in line]
    assert row.startswith("| x \\| --&gt; &lt;!-- | a\\|b c d &lt;!-- /results --&gt; &lt;!-- res")


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
    ablated = subprocess.run(
        [
            *(*command, "--ablate", "--profile", "--out", str(tmp_path / "ablated")),
            *("--ways", "16 clips a batch; batches by samples"),
        ],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ablated.returncode == 0, ablated.stderr
    (path,) = (tmp_path / "ablated").rglob("*.json")
    made = read_result(path)
    assert [row["way"] for row in made["rows"]] == ["16 clips a batch", "batches by samples"]
    for row in made["rows"]:
        assert row["agreement"] == 1.0
        assert row["codes_compared"] > 0
        assert row["loop_hours_per_min"] > 0
        assert sum(part["share"] for part in row["profile"]) == pytest.approx(1.0)
    assert made["figures"]["speech_capacity_hours_per_min"]["value"] > 0
    few = subprocess.run(
        [*command, "--shards", "7"], env=environment, check=False, capture_output=True, text=True
    )
    assert few.returncode == 2
    assert "7 shards are too few" in few.stderr
