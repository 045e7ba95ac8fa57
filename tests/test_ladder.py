"""The ladder for real: a switch that runs, one that cannot, and a ladder killed half way."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from conftest import ROOT
from lineage_run import ending, processes_with, wait_for

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from speech_assets.assets.imported import import_result
from speech_assets.assets.load_tests import LadderConfig, load_test_assets
from speech_assets.load.levels import row_from
from speech_assets.profiles import load_profile
from speech_assets.results import published
from speech_assets.results.result import read_result
from speech_assets.results.stored import stored_ids
from speech_assets.work.ladder_trials import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = """
[ladders.small]
preset = "embedded-bf16"
note = "as it ships, a hop a frame"
settings = { largest_hop = 1 }
levels = [1]
duration_s = 2
warmup_s = 0

[[ladders.small.steps]]
name = "longer hops"
switch = "largest_hop"
value = 4

[[ladders.small.steps]]
name = "codec on a GPU"
switch = "codec_device"
value = "cuda"
"""
pytestmark = pytest.mark.timeout(600)
Climbed = tuple[Store, dg.DagsterInstance, dict[str, Any], str, str]


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Climbed]:
    """A ladder whose process was killed after the baseline, and that was then run to its end.

    The store, Dagster's history, the result, the baseline as the killed one kept it, and the log.
    """
    folder = tmp_path_factory.mktemp("ladder")
    table, store = folder / "ladder.toml", Store(str(folder / "store"))
    table.write_text(TABLE)
    command = [sys.executable, "-m", "speech_assets.work.ladder", "--ladder", "small"]
    command += ["--table", str(table), "--store", store.root, "--allow-client-limit"]
    environment = {**os.environ, "SPEECH_STORE": store.root}
    with (folder / "log.txt").open("wb") as log:
        killed = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        with ending(killed):
            wait_for(
                lambda: (
                    killed.poll() is not None
                    or any(key.endswith("/baseline.json") for key in store.keys("ladder"))
                ),
                "the baseline is kept",
            )
            killed.kill()
    wait_for(
        lambda: not processes_with("SPEECH_STORE", store.root), "nothing of the ladder is left"
    )
    [kept] = [key for key in store.keys("ladder") if key.endswith("/baseline.json")]
    baseline = store.read_json(kept)["started_at"]
    [_, asset] = load_test_assets(load_profile({}))
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.chdir(ROOT)
        config = LadderConfig(ladder="small", table=str(table), allow_client_limit=True)
        done = dg.materialize(
            [asset],
            resources={"store": StoreResource(root=store.root), "work": WorkResource()},
            run_config=dg.RunConfig(ops={"ladder": config}),
            instance=instance,
        )
        assert done.success
        [name] = stored_ids(store)
        yield store, instance, store.read_json(f"results/{name}.json"), baseline, kept


def test_a_ladder_has_a_row_per_step_with_its_outcome_and_why(climbed: Climbed) -> None:
    _, _, value, _, _ = climbed
    assert (value["kind"], value["name"], value["status"]) == ("ladder", "small", "complete")
    baseline, longer, on_gpu = value["rows"]
    assert (baseline["outcome"], baseline["settings"]) == ("baseline", {"largest_hop": 1})
    assert longer["outcome"] in ("adopted", "rejected")
    assert longer["follows"] == "baseline"
    assert on_gpu["follows"] == ("longer hops" if longer["outcome"] == "adopted" else "baseline")
    assert longer["settings"] == {"largest_hop": 4}
    assert "streams in realtime" in longer["why"]
    assert longer["config_sha256"] != baseline["config_sha256"]
    assert on_gpu["outcome"] == "not possible"
    for row in (baseline, longer):
        [level] = map(row_from, row["levels"])
        assert level.completed > 0
        assert row["ttfa_ms_p50"] == level.value("ttfa_ms_p50")
    reached = longer if longer["outcome"] == "adopted" else baseline
    assert value["figures"]["ttfa_ms_p50"]["value"] == reached["ttfa_ms_p50"]


def test_what_cannot_run_says_why_in_the_servers_words(climbed: Climbed) -> None:
    _, _, value, _, _ = climbed
    why = value["rows"][2]["why"]
    assert "cuda" in why.lower() or "gpu" in why.lower()
    assert "\n" not in why
    assert "Traceback" not in why


def test_a_killed_ladder_goes_on_from_what_it_had_measured(climbed: Climbed) -> None:
    store, _, value, baseline, kept = climbed
    assert value["rows"][0]["started_at"] == value["started_at"] == baseline
    # Once it is whole, the next one is measured anew; the requests stay.
    assert not store.exists(kept)
    requests = [key for key in store.keys("ladder") if key.endswith(".parquet")]
    assert len(requests) == 2


def test_the_assets_page_shows_the_steps(climbed: Climbed) -> None:
    _, instance, value, _, _ = climbed
    event = instance.get_latest_materialization_event(dg.AssetKey("ladder"))
    metadata = event.asset_materialization.metadata
    text = metadata["steps_table"].value
    assert f"| longer hops | `largest_hop` = 4 | {value['rows'][1]['outcome']} |" in text
    assert "| codec on a GPU | `codec_device` = cuda | not possible | - | - | - | - |" in text


def test_a_ladder_is_imported_and_published_as_any_result(
    climbed: Climbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, value, _, _ = climbed
    [name] = stored_ids(store)
    path = tmp_path / "ladder.json"
    path.write_bytes(store.read_bytes(f"results/{name}.json"))
    assert read_result(path) == value
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    assert import_result(path, Store(str(tmp_path / "store"))) == name
    with dg.DagsterInstance.get() as instance:
        assert instance.get_latest_materialization_event(dg.AssetKey("ladder")) is not None
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    assert published.of_kind("ladder") == []
    assert published.publish(path.read_bytes(), name) == tmp_path / "results" / f"{name}.json"
    assert published.of_kind("ladder") == [value]


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (TABLE.replace('"codec_device"', '"warp_drive"'), "'warp_drive' is no switch of a preset"),
        (TABLE.replace("embedded-bf16", "nothing"), "no preset 'nothing'"),
        (TABLE.replace("levels = [1]", "levels = [0]"), "0 is no level"),
        (TABLE.replace("value = 4", 'value = "many"'), "small: longer hops.largest_hop is 'many'"),
        (TABLE.replace("value = 4", "value = 0"), "small: longer hops"),
        (
            TABLE.replace("value = 4", "value = 2024-01-01"),
            "step 1 (longer hops): value is 2024-01-01",
        ),
        (TABLE.replace("warmup_s = 0", "warmup_s = inf"), "ladders.small.warmup_s is inf"),
        (
            TABLE.replace('"codec_device"\nvalue = "cuda"', '"codec"\nvalue = "absent"'),
            "codec on a GPU: weights 'absent': no such folder",
        ),
    ],
)
def test_a_ladder_that_cannot_be_climbed_is_said_in_one_line(
    tmp_path: Path, toml: str, says: str
) -> None:
    (tmp_path / "ladder.toml").write_text(toml)
    command = [sys.executable, "-m", "speech_assets.work.ladder", "--ladder", "small"]
    command += ["--table", str(tmp_path / "ladder.toml"), "--store", str(tmp_path / "store")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert not (tmp_path / "store").exists()


def test_the_reason_is_the_last_error_that_a_server_logged() -> None:
    message = (
        "the server of preset 'x' ended with exit code 2; it logged last:\n"
        "2026-11-29 21:58:12,394 INFO loading\n"
        "2026-11-29 21:58:13,394 ERROR there is no GPU here; choose cpu\n"
        "2026-11-29 21:58:14,394 INFO ended\n"
    )
    assert reason_of(message) == "there is no GPU here; choose cpu"
    assert reason_of("the server died:\nlast words\n") == "last words"
