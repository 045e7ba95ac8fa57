"""Load tests through Dagster on a real server: measured, kept, shown, imported and published."""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from lineage_run import ending, wait_for

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from speech_assets.assets.imported import import_result
from speech_assets.assets.load_tests import LoadTestConfig, load_test_assets
from speech_assets.demo_quality import load_lines, quality_steps
from speech_assets.errors import ConfigError
from speech_assets.load.levels import parse_levels
from speech_assets.profiles import load_profile
from speech_assets.results import published
from speech_assets.results.__main__ import main
from speech_assets.results.result import read_result, with_content_hash
from speech_assets.results.stored import stored_ids, stored_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRESET = "embedded-bf16"
Measured = tuple[Store, dg.DagsterInstance, dict[str, Any]]
pytestmark = pytest.mark.timeout(600)


def load_test(store: str, instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    """The asset on the smallest load; a busy machine is forgiven unless told otherwise."""
    given: dict[str, Any] = {
        "levels": "1",
        "loads": "generating",
        "duration_s": 3.0,
        "warmup_s": 1.0,
        "allow_client_limit": True,
        **config,
    }
    [asset, _] = load_test_assets(load_profile({}))
    return dg.materialize(
        [asset],
        partition_key=PRESET,
        resources={"store": StoreResource(root=store), "work": WorkResource()},
        run_config=dg.RunConfig(ops={"load_tests": LoadTestConfig(**given)}),
        instance=instance,
        raise_on_error=False,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """One level of both loads, measured."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.chdir(ROOT)
        done = load_test(store.root, instance, loads="generating,listening")
        assert done.success
        [name] = stored_ids(store)
        yield store, instance, store.read_json(f"results/{name}.json")


def test_a_result_has_a_row_per_level_and_says_how_it_was_measured(measured: Measured) -> None:
    store, _, value = measured
    assert (value["kind"], value["name"], value["status"]) == ("load_tests", PRESET, "complete")
    assert value["reduced"]
    assert [(row["load"], row["level"]) for row in value["rows"]] == [
        ("generating", 1.0),
        ("listening", 1.0),
    ]
    for row in value["rows"]:
        # In so short a time chance may send one listener away.
        assert row["completed"] == row["started"] == row["offered"]
        assert row["failed"] == row["dropped"] == 0
        assert row["passed"] == (not row["failures"])
    generating = value["rows"][0]
    assert generating["completed"] > 0
    figures = generating["figures"]
    for figure in (
        "ttfa_ms_p50",
        "ttfs_ms_p50",
        "rtf_p50",
        "engine_step_ms_mean",
        "engine_thread_busy_share",
    ):
        assert figures[figure]["value"] > 0, figure
    assert figures["decode_batch_rows_mean"]["value"] >= 1
    assert figures["resident_memory_mib"]["value"] > 100
    assert "rtf_p95" not in figures  # Of few requests there is none.
    assert value["config"]["client_shares_cores"] is True
    assert value["config"]["sweep"]["duration_s"] == 3.0
    [key] = [f"results/{name}.json" for name in stored_ids(store)]
    read_result(store_path(store, key))
    best = {row["load"]: 1.0 if row["passed"] else 0.0 for row in value["rows"]}
    for load, level in best.items():
        assert value["figures"][f"max_realtime_streams_{load}"]["value"] == level
        assert value["figures"][f"max_realtime_streams_{load}_with_margin"]["value"] == 0


def test_every_request_is_kept_beside_the_charts(measured: Measured) -> None:
    store, _, value = measured
    keys = store.keys("load_tests")
    names = {key.split("/", 3)[3] for key in keys}
    assert names == {
        "levels.csv",
        *(f"{chart}.{form}" for chart in ("latency", "rtf", "faults") for form in ("png", "csv")),
        "requests/generating-0001-seed1.parquet",
        "requests/listening-0001-seed1.parquet",
    }
    key = next(key for key in keys if key.endswith("generating-0001-seed1.parquet"))
    table = pq.read_table(io.BytesIO(store.read_bytes(key)))
    counted = [row for row in table.to_pylist() if not row["warmup"]]
    ok = [row for row in counted if row["outcome"] == "ok"]
    assert len(ok) == value["rows"][0]["completed"]


def test_the_assets_page_shows_charts_and_figures(measured: Measured) -> None:
    _, instance, value = measured
    event = instance.get_latest_materialization_event(dg.AssetKey("load_tests"))
    materialization = event.asset_materialization
    assert materialization.partition == PRESET
    metadata = materialization.metadata
    for chart in ("latency", "rtf", "faults"):
        text = metadata[chart].value
        assert text.startswith("![")
        assert "](data:image/png;base64,iVBORw0KGgo" in text
        assert len(text) < 100_000
    for name, figure in value["figures"].items():
        assert f"| {name} |" in metadata["figures"].value
        if name in metadata:
            assert metadata[name].value == pytest.approx(figure["value"], rel=5e-3)
    assert metadata["finding"].value.startswith("streams in realtime: ")
    assert metadata["reduced"].value == "3 of 60 s a level"
    assert "| generating | 1 | 1 |" in metadata["levels"].value


def test_the_demo_says_how_the_levels_went(measured: Measured) -> None:
    store, _, value = measured
    lines = load_lines(store, [PRESET, "another"])
    assert lines[0].startswith(f"Load on preset {PRESET}, 3 s a level, server and client on")
    assert lines[1].startswith("  generating 1: TTFA p50 ")
    assert len(lines) == 1 + len(value["rows"])


def test_the_demo_offers_two_short_levels() -> None:
    [step] = [step for step in quality_steps([PRESET]) if step.job == "load_test"]
    config = LoadTestConfig(**step.config["ops"]["load_tests"]["config"])
    assert step.partition == PRESET
    assert parse_levels(config.levels) == (1.0, 2.0)
    assert config.duration_s <= 10
    assert not config.until_failure


def test_a_late_client_makes_the_result_invalid_and_the_asset_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with dg.DagsterInstance.ephemeral() as instance:
        # No loop keeps to a microsecond.
        done = load_test(str(tmp_path), instance, lag_limit_ms=0.001, allow_client_limit=False)
        assert not done.success
        [failure] = [event for event in done.all_events if event.is_step_failure]
        message = failure.step_failure_data.error.message
        assert instance.get_latest_materialization_event(dg.AssetKey("load_tests")) is None
    assert "the client was the limit at 1 of 1 levels" in message
    assert "allow_client_limit" in message
    store = Store(str(tmp_path))
    [name] = stored_ids(store)
    value = store.read_json(f"results/{name}.json")
    assert value["status"] == "invalid"
    assert value["config"]["client_faults"]
    with pytest.raises(ConfigError, match="only complete results are shown"):
        published.publish(store.read_bytes(f"results/{name}.json"), name)


def test_a_result_of_another_machine_is_recorded_in_the_lineage(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, value = measured
    [key] = [f"results/{name}.json" for name in stored_ids(store)]
    other = Store(str(tmp_path / "store"))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    name = import_result(store_path(store, key), other)
    assert stored_ids(other) == [name]
    assert other.read_bytes(key) == store.read_bytes(key)
    with dg.DagsterInstance.get() as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("load_tests"))
        assert event.asset_materialization.partition == PRESET
        metadata = event.asset_materialization.metadata
        assert metadata["rtf"].value.startswith("![")
        assert metadata["imported_from"].value == key.rpartition("/")[2]
        figure = value["figures"]["max_realtime_streams_generating"]["value"]
        assert metadata["max_realtime_streams_generating"].value == figure


def test_what_no_asset_records_is_not_imported(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, value = measured
    other = Store(str(tmp_path / "store"))

    def refusal(**changed: Any) -> str:
        path = tmp_path / "result.json"
        path.write_text(json.dumps(with_content_hash({**value, **changed})))
        with pytest.raises(ConfigError) as caught:
            import_result(path, other)
        return str(caught.value)

    assert "results of kind 'calibration' are not imported" in refusal(kind="calibration")
    assert "status is 'invalid'" in refusal(status="invalid")
    assert "rows.0 is 1" in refusal(rows=[1])
    assert "preset 'w4a16' is not of the profile in force" in refusal(name="w4a16")
    [good] = stored_ids(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(tmp_path))
        key = f"results/{good}.json"
        other.write_bytes(key, b"a good one")
        assert "rows.0.level is 'x'" in refusal(rows=[{**value["rows"][0], "level": "x"}])
        assert other.read_bytes(key) == b"a good one"
        other.delete(key)
        shutil.rmtree(tmp_path / "store")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert "export DAGSTER_HOME=$PWD" in refusal()
    assert not (tmp_path / "store").exists()


def test_a_result_is_published_by_its_id_or_the_tail_of_it(
    measured: Measured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, _, value = measured
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    (tmp_path / "README.md").write_text("<!-- results: load-tests -->\n<!-- /results -->\n")
    assert main(["list", "--stored", "--store", store.root]) == 0
    name = capsys.readouterr().out.strip().partition("  (")[0]
    run = name.rpartition("/")[2]
    assert main(["publish", run, "--store", store.root]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"results/{name}.json"
    assert (tmp_path / f"results/{name}.json").read_bytes() == store.read_bytes(
        f"results/{name}.json"
    )
    assert name.startswith("load_tests/")
    assert main(["render"]) == 0
    page = (tmp_path / "README.md").read_text()
    assert f"| {PRESET} (reduced" in page
    assert value["started_at"][:10] in page
    assert main(["publish", "nothing", "--store", store.root]) == 2
    assert "'nothing' is neither a file nor result of" in capsys.readouterr().err
    shutil.copytree(
        store_path(store, "results"), tmp_path / "double" / "results", dirs_exist_ok=True
    )
    double = Store(str(tmp_path / "double"))
    double.write_bytes(f"results/ladder/a/b/{run}.json", b"{}")
    with pytest.raises(ConfigError, match="the tail of more than one"):
        stored_key(double, run)


def test_an_option_that_begins_with_a_minus_reaches_the_load_test_from_the_asset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for config, says in (
        ({"levels": "-1,2"}, "levels '-1,2': -1 is no level"),
        ({"seeds": "-1,2"}, "seeds '-1,2': give whole numbers"),
        ({"loads": "-x"}, "loads '-x': give generating"),
        ({"warmup_s": -1e-5}, "warmup_s is -1e-05"),
    ):
        with dg.DagsterInstance.ephemeral() as instance:
            done = load_test(str(tmp_path), instance, **config)
        [failure] = [event for event in done.all_events if event.is_step_failure]
        assert says in failure.step_failure_data.error.message
    assert list(tmp_path.iterdir()) == []


def interrupted(folder: Path) -> tuple[int, Store, str]:
    """Exit code, store and last line of a load test that got Ctrl-C after its first level."""
    folder.mkdir()
    store = Store(str(folder / "store"))
    command = [sys.executable, "-m", "speech_assets.work.load_test", "--store", store.root]
    command += ["--levels", "1,2", "--all-levels", "--duration-s", "1", "--warmup-s", "0"]
    with (
        (folder / "log").open("wb") as log,
        ending(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)) as process,
    ):
        wait_for(
            lambda: (
                process.poll() is not None
                or any(key.endswith(".parquet") for key in store.keys("load_tests"))
            ),
            "a level is kept",
        )
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=120)
    return code, store, (folder / "log").read_text().splitlines()[-1]


def test_an_interrupted_load_test_says_what_is_kept_and_that_the_next_begins_anew(
    tmp_path: Path,
) -> None:
    code, store, line = interrupted(tmp_path / "first")
    if code == 0:  # Python drops a signal that comes while a finalizer runs: rare, and not ours.
        code, store, line = interrupted(tmp_path / "second")
    assert code == 130
    assert stored_ids(store) == []
    assert line.startswith("interrupted; there is no result, and the next load test begins anew")
    assert f"levels are in {store.path('load_tests')}/{PRESET}/" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--preset", "nothing"], "no preset 'nothing'; there are embedded-bf16"),
        (["--levels", "0"], "0 is no level; give whole numbers of streams"),
        (["--levels", "-1,2"], "levels '-1,2': -1 is no level"),
        (["--levels", ",".join(map(str, range(1, 5001)))], "4097 is no level"),
        (["--seeds", "99999999999999999999"], "is no seed; give 0 to 1099511627775"),
        (["--seeds", "1,1"], "seeds '1,1': 1 is given more than once"),
        (["--seeds", "-1,2"], "seeds '-1,2': give whole numbers"),
        (["--loads", "-generating"], "loads '-generating': give generating or listening"),
        (["--duration-s", "0"], "duration_s is 0; it must be 1 to 86400"),
        (["--warmup-s", "-1e5"], "warmup_s is -100000; it must be 0 to 86400"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line_before_a_server_is_started(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    command = [sys.executable, "-m", "speech_assets.work.load_test", "--store", str(tmp_path)]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert len(line) < 1_000
    assert list(tmp_path.iterdir()) == []


def store_path(store: Store, key: str) -> Path:
    """Path of a key of a local store."""
    from pathlib import Path

    return Path(store.path(key))
