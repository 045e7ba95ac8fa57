"""Schedule, sensors and freshness, evaluated: what a tick starts, and what it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from automation.checkpoint_folder import check, make_checkpoint
from automation.conftest import PRESETS, Project, profile_of
from conftest import ROOT

from speech_assets.definitions import build_definitions
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Corpus

MONDAY = datetime(2026, 11, 30, 2, tzinfo=UTC)  # Of week 49.
W4A16 = "embedded-w4a16"


def weekly(project: Project, at: datetime = MONDAY, said: list[str] | None = None) -> Any:
    return project.schedule("weekly_rebenchmark", at, said)


def started(tick: Any) -> list[str]:
    return [request.partition_key for request in tick.run_requests]


def test_everything_is_off_until_it_is_turned_on(project: Project) -> None:
    assert {sensor.name for sensor in project.defs.sensors or ()} == {
        "new_checkpoint",
        "renew_report",
        "tell_of_failures",
    }
    for sensor in project.defs.sensors or ():
        assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
        assert (sensor.minimum_interval_seconds or 0) >= 60
    schedule = project.defs.resolve_schedule_def("weekly_rebenchmark")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 2 * * 1", "UTC")


def test_what_is_measured_goes_stale_after_two_weeks_and_fails_after_thirty_days(
    project: Project,
) -> None:
    graph = project.defs.resolve_asset_graph()
    for asset in ("load_tests", "wer"):
        policy = graph.get(dg.AssetKey(asset)).freshness_policy
        assert policy == dg.FreshnessPolicy.time_window(timedelta(days=30), timedelta(days=14))


def test_a_monday_measures_each_served_preset_once_in_a_run_of_its_own(project: Project) -> None:
    make_checkpoint(project.root, W4A16)
    check(project.root, W4A16)
    tick = weekly(project)
    assert started(tick) == ["embedded-bf16", W4A16]
    assert [request.run_key for request in tick.run_requests] == [
        "2026-W49/embedded-bf16",
        "2026-W49/embedded-w4a16",
    ]
    tags = tick.run_requests[0].tags
    assert tags["speech/started_by"] == "weekly_rebenchmark"
    assert tags["dagster/partition"] == "embedded-bf16"


def test_a_tick_repeated_has_the_same_keys_and_next_week_others(project: Project) -> None:
    def keys(at: datetime) -> set[str | None]:
        return {request.run_key for request in weekly(project, at).run_requests}

    first = keys(MONDAY)
    assert keys(MONDAY + timedelta(minutes=10)) == first
    assert not keys(MONDAY + timedelta(weeks=1)) & first


def test_why_a_preset_is_left_out_is_in_the_ticks_log(project: Project) -> None:
    make_checkpoint(project.root, W4A16)
    check(project.root, W4A16, passed=False)
    said: list[str] = []
    assert started(weekly(project, MONDAY, said)) == ["embedded-bf16"]
    assert "embedded-w4a16 is left out" in said[0]
    assert "mean KL 0.3 nats" in said[0]
    assert "embedded-fp8 is left out" in said[1]
    assert "has no checkpoint yet" in said[1]


def test_when_no_preset_is_served_the_tick_says_why(
    tmp_path: Path, short_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = profile_of(tmp_path / "profiles.toml", short_corpus)
    text = (tmp_path / "profiles.toml").read_text()
    (tmp_path / "profiles.toml").write_text(text.replace("'embedded-bf16', ", ""))
    for name, value in {**environment, "SPEECH_STORE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.ephemeral() as instance:
        tick = weekly(Project(build_definitions(), tmp_path, instance))
    assert tick.run_requests == []
    assert "embedded-fp8 is left out" in tick.skip_message


def test_the_job_measures_the_preset_and_looks_for_regressions(project: Project) -> None:
    job = project.defs.resolve_job_def("rebenchmark")
    keys = {key.to_user_string() for key in job.asset_layer.executable_asset_keys}
    assert keys == {"samples", "wer", "load_tests", "decode_speed"}
    steps = {node.name for node in job.nodes}
    assert {f"{name}_no_regression" for name in ("wer", "load_tests", "decode_speed")} <= steps


def test_a_profile_shortens_what_runs_by_itself(
    tmp_path: Path, short_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "rebenchmark.load_tests = { duration_s = 5.0, levels = '1' }"
    environment = profile_of(tmp_path / "profiles.toml", short_corpus, rows)
    for name, value in {**environment, "SPEECH_STORE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.ephemeral() as instance:
        [request] = weekly(Project(build_definitions(), tmp_path, instance)).run_requests
    config = request.run_config["ops"]["load_tests"]["config"]
    assert config == {"duration_s": 5.0, "levels": "1"}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("rebenchmark.report = { x = 1 }", r"profiles\.small\.rebenchmark\.report is no asset"),
        ("rebenchmark.samples = { sentences = 0 }", r"rebenchmark\.samples\.sentences is 0"),
        ("rebenchmark.wer = { dnsmoss = false }", r"rebenchmark\.wer\.dnsmoss"),
    ],
)
def test_a_profiles_wrong_setting_is_said_when_definitions_load(
    tmp_path: Path,
    short_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    rows: str,
    says: str,
) -> None:
    for name, value in profile_of(tmp_path / "p.toml", short_corpus, rows).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=says):
        build_definitions()


def test_checkpoints_that_were_there_before_the_sensor_are_not_new(project: Project) -> None:
    make_checkpoint(project.root, W4A16)
    check(project.root, W4A16)
    project.made("checkpoints", W4A16)
    project.made("fidelity", W4A16)
    tick = project.sensor("new_checkpoint")
    assert started(tick) == []
    assert "embedded-w4a16 is not measured: its checkpoint was there before" in tick.skip_message
    project.made("fidelity", W4A16)  # Judged again, it is the same.
    assert started(project.sensor("new_checkpoint", tick.cursor)) == []


@pytest.mark.parametrize(
    "cursor",
    [
        *("garbage", "[]", "null", '{"x": 5}', "3", "[" * 100_000, '{"embedded-w4a16": [1]}'),
        *('{"embedded-w4a16": ["1", "x"]}', '{"embedded-w4a16": [true, "x"]}'),
        *('{"embedded-w4a16": [1, null]}', "\udcff"),
    ],
)
def test_a_damaged_cursor_is_said_and_begins_anew(project: Project, cursor: str) -> None:
    make_checkpoint(project.root, W4A16)
    check(project.root, W4A16)
    project.made("checkpoints", W4A16)
    tick = project.sensor("new_checkpoint", cursor)
    assert started(tick) == []
    assert "the sensor's cursor is damaged (" in tick.skip_message
    assert "embedded-w4a16 is not measured: its checkpoint was there before" in tick.skip_message
    make_checkpoint(project.root, W4A16, b"others")
    check(project.root, W4A16)
    project.made("checkpoints", W4A16)
    assert started(project.sensor("new_checkpoint", tick.cursor)) == [W4A16]


def test_several_new_checkpoints_start_at_once_and_none_of_them_twice(project: Project) -> None:
    for preset in PRESETS[1:]:
        make_checkpoint(project.root, preset)
        check(project.root, preset)
        project.made("checkpoints", preset)
        project.made("fidelity", preset)
    tick = project.sensor("new_checkpoint", "{}")
    assert sorted(started(tick)) == sorted(PRESETS[1:])
    assert len({request.run_key for request in tick.run_requests}) == 2
    again = project.sensor("new_checkpoint", tick.cursor)
    assert started(again) == []
    assert again.skip_message == "no checkpoint is new"
    # Kept, because nothing has changed, and recorded again.
    project.made("checkpoints", W4A16)
    project.made("fidelity", W4A16)
    assert started(project.sensor("new_checkpoint", again.cursor)) == []


def test_a_checkpoint_made_anew_of_other_weights_starts_again(project: Project) -> None:
    make_checkpoint(project.root, W4A16)
    check(project.root, W4A16)
    project.made("checkpoints", W4A16)
    first = project.sensor("new_checkpoint", "{}")
    make_checkpoint(project.root, W4A16, b"others")
    check(project.root, W4A16)
    project.made("checkpoints", W4A16)
    second = project.sensor("new_checkpoint", first.cursor)
    assert started(second) == [W4A16]
    assert second.run_requests[0].run_key != first.run_requests[0].run_key


def test_a_checkpoint_waits_for_its_fidelity(project: Project) -> None:
    make_checkpoint(project.root, W4A16)
    project.made("checkpoints", W4A16)
    waiting = project.sensor("new_checkpoint", "{}")
    assert started(waiting) == []
    assert "fidelity was not made" in waiting.skip_message
    check(project.root, W4A16)
    project.made("fidelity", W4A16)
    assert started(project.sensor("new_checkpoint", waiting.cursor)) == [W4A16]


def test_a_checkpoint_that_failed_fidelity_starts_nothing_until_it_passes(
    project: Project,
) -> None:
    make_checkpoint(project.root, W4A16)
    check(project.root, W4A16, passed=False)
    project.made("checkpoints", W4A16)
    project.made("fidelity", W4A16)
    failed = project.sensor("new_checkpoint", "{}")
    assert started(failed) == []
    assert "mean KL 0.3 nats" in failed.skip_message
    assert project.sensor("new_checkpoint", failed.cursor).skip_message == "no checkpoint is new"
    check(project.root, W4A16)
    project.made("fidelity", W4A16)
    assert started(project.sensor("new_checkpoint", failed.cursor)) == [W4A16]


def test_a_preset_of_another_profile_is_not_looked_at(project: Project) -> None:
    project.made("checkpoints", "embedded-fp8-kv")
    assert json.loads(project.sensor("new_checkpoint", "{}").cursor) == {}


def test_the_report_is_renewed_once_when_something_was_measured(project: Project) -> None:
    assert "nothing was measured" in project.sensor("renew_report").skip_message
    project.made("wer", PRESETS[0])
    [request] = project.sensor("renew_report").run_requests
    assert request.tags["speech/started_by"] == "renew_report"
    assert project.sensor("renew_report").run_requests[0].run_key == request.run_key
    project.instance.report_runless_asset_event(dg.AssetMaterialization("report"))
    assert "nothing was measured" in project.sensor("renew_report").skip_message
    project.made("load_tests", PRESETS[0])
    [later] = project.sensor("renew_report").run_requests
    assert later.run_key != request.run_key


def test_the_report_waits_for_the_last_rebenchmark(project: Project) -> None:
    project.made("wer", PRESETS[0])
    run = project.instance.create_run_for_job(
        project.defs.resolve_job_def("rebenchmark"),
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/partition": PRESETS[1]},
    )
    tick = project.sensor("renew_report")
    assert tick.skip_message == "1 runs of rebenchmark are not finished yet"
    project.instance.report_run_failed(run)
    assert len(project.sensor("renew_report").run_requests) == 1


def test_definitions_load_no_pandas() -> None:
    code = "import sys, speech_assets.definitions; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
