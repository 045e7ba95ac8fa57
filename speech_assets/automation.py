"""What starts runs by itself: a schedule, and sensors. All are off until they are turned on.

| name | when | starts |
| --- | --- | --- |
| `weekly_rebenchmark` | Mondays, 02:00 UTC | `rebenchmark` of every preset that is served |
| `new_checkpoint` | a checkpoint was made and has passed its checks | `rebenchmark` of its preset |
| `renew_report` | something was measured, and no `rebenchmark` is under way | `write_report` |
| `tell_of_failures` | a run has failed | nothing: it writes a note, and sends it |

The report is not part of `rebenchmark`: that runs once a preset, and the report is of all presets.
An automation condition on it would be asked after every run, those by hand too, and would write it
once for each preset of a Monday; the sensor waits for the last of them, also when one has failed.
"""

# No `from __future__ import annotations`: Dagster reads annotations of its functions as objects.
import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import dagster as dg
from pydantic import ValidationError

from resources.configured import StoreResource
from speech_assets.assets.checkpoints import DecodeSpeedConfig
from speech_assets.assets.load_tests import LoadTestConfig
from speech_assets.assets.quality import WerConfig
from speech_assets.assets.regressions import AUTOMATIC
from speech_assets.assets.serving import SamplesConfig
from speech_assets.errors import ConfigError
from speech_assets.failure_notes import failure_note
from speech_assets.jobs import REBENCHMARK, WRITE_REPORT
from speech_assets.notes import tell
from speech_assets.profiles import Profile
from speech_assets.served import checked, not_served

WEEKLY = "weekly_rebenchmark"
NEW_CHECKPOINT = "new_checkpoint"
RENEW_REPORT = "renew_report"
TELL_OF_FAILURES = "tell_of_failures"
MONDAY_EARLY = "0 2 * * 1"
MEASURED = ("load_tests", "wer", "decode_speed")
LOOK_EVERY_S = 60
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_CONFIGS: Mapping[str, type[dg.Config]] = {
    "samples": SamplesConfig,
    "wer": WerConfig,
    "load_tests": LoadTestConfig,
    "decode_speed": DecodeSpeedConfig,
}


def automation_schedules(profile: Profile) -> list[Any]:
    """The schedule of the profile.

    Raises:
        ConfigError: `rebenchmark` of the profile is not what it must be.
    """
    run_config = rebenchmark_config(profile)

    @dg.schedule(
        job_name=REBENCHMARK,
        name=WEEKLY,
        cron_schedule=MONDAY_EARLY,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Measure every preset again that a server would take, each in a run of its "
        "own. Why one is left out is in the tick's log.",
    )
    def weekly_rebenchmark(
        context: dg.ScheduleEvaluationContext, store: StoreResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        refusals = {preset: not_served(preset, store.root) for preset in profile.presets}
        left_out = [f"{preset} is left out: {why}" for preset, why in refusals.items() if why]
        for line in left_out:
            context.log.warning(line)
        if len(left_out) == len(refusals):
            yield dg.SkipReason("\n".join(left_out) or "the profile has no presets")
            return
        year, week, _ = context.scheduled_execution_time.isocalendar()
        for preset in (preset for preset, why in refusals.items() if not why):
            # The week is in the key: a tick that is tried again starts nothing twice.
            yield _request(f"{year}-W{week:02}/{preset}", preset, run_config, WEEKLY)

    return [weekly_rebenchmark]


def automation_sensors(profile: Profile) -> list[Any]:
    """The sensors of the profile.

    Raises:
        ConfigError: `rebenchmark` of the profile is not what it must be.
    """
    run_config = rebenchmark_config(profile)

    @dg.sensor(
        job_name=REBENCHMARK,
        name=NEW_CHECKPOINT,
        minimum_interval_seconds=LOOK_EVERY_S,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Measure a preset whose checkpoint is new, once its checks have passed. Those "
        "that were there when the sensor was turned on are not new.",
    )
    def new_checkpoint(
        context: dg.SensorEvaluationContext, store: StoreResource
    ) -> dg.SensorResult:
        made = _newest_ids(context.instance, "checkpoints", profile)
        judged = _newest_ids(context.instance, "fidelity", profile)
        known = _seen(context.cursor)
        seen = {} if known is None else known
        requests: list[dg.RunRequest] = []
        lines: list[str] = []
        if known is None and context.cursor is not None:
            lines.append(
                f"the sensor's cursor is damaged ({reprlib.repr(context.cursor)}): this tick is "
                f"taken for the first, as if {NEW_CHECKPOINT} had just been turned on; launch "
                f"{REBENCHMARK} by hand for a checkpoint that is new"
            )
        for preset in made:
            event = max(made[preset], judged.get(preset, 0))
            seen_event, seen_checkpoint = seen.get(preset, (0, ""))
            if event <= seen_event:
                continue
            verdict = checked(preset, store.root)
            if verdict.refusal:
                lines.append(f"{preset} is not measured: {verdict.refusal}")
                # Without a fidelity since, it may still come; with one, the check has failed.
                if judged.get(preset, 0) > made[preset]:
                    seen[preset] = event, seen_checkpoint
                continue
            # By what it is, not by when: made or judged again and the same, it is not new.
            if known is None or verdict.fingerprint == seen_checkpoint:
                lines.append(f"{preset} is not measured: its checkpoint was there before")
            else:
                key = f"{preset}/{verdict.fingerprint}"
                requests.append(_request(key, preset, run_config, NEW_CHECKPOINT))
            seen[preset] = event, verdict.fingerprint
        for line in lines:
            context.log.info(line)
        return dg.SensorResult(
            run_requests=requests,
            cursor=json.dumps(seen, sort_keys=True),
            skip_reason=None if requests else "\n".join(lines) or "no checkpoint is new",
        )

    @dg.sensor(
        job_name=WRITE_REPORT,
        name=RENEW_REPORT,
        minimum_interval_seconds=LOOK_EVERY_S,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Write the report again when {' or '.join(MEASURED)} are newer than it and no "
        f"{REBENCHMARK} is under way.",
    )
    def renew_report(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        instance = context.instance
        newest = max(_newest_id(instance, asset) for asset in MEASURED)
        if newest <= _newest_id(instance, "report"):
            return dg.SkipReason("nothing was measured since the report was written")
        filters = dg.RunsFilter(job_name=REBENCHMARK, statuses=UNFINISHED)
        if unfinished := instance.get_runs_count(filters):
            return dg.SkipReason(f"{unfinished} runs of {REBENCHMARK} are not finished yet")
        return dg.RunRequest(run_key=str(newest), tags={AUTOMATIC: RENEW_REPORT})

    @dg.run_failure_sensor(
        name=TELL_OF_FAILURES,
        minimum_interval_seconds=LOOK_EVERY_S,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Write a note of each run that has failed to notes/failures/ of the store, and "
        "send it to SPEECH_ALERT_URL where that is set.",
    )
    def tell_of_failures(context: dg.RunFailureSensorContext, store: StoreResource) -> None:
        note = failure_note(
            context.dagster_run, context.failure_event, context.get_step_failure_events()
        )
        tell(note, store.store(), context.log)

    return [new_checkpoint, renew_report, tell_of_failures]


def rebenchmark_config(profile: Profile) -> dict[str, Any]:
    """Run config of `rebenchmark`, by the profile's `rebenchmark`; whole runs where it is empty.

    Raises:
        ConfigError: it names another asset, or a setting that the asset does not take.
    """
    where = f"profiles.{profile.name}.rebenchmark"
    for asset, values in profile.rebenchmark.items():
        if asset not in _CONFIGS:
            raise ConfigError(f"{where}.{asset} is no asset of it; give {', '.join(_CONFIGS)}")
        known = _CONFIGS[asset].model_fields
        if unknown := sorted(set(values) - set(known)):
            raise ConfigError(
                f"{where}.{asset}.{unknown[0]} is not a setting; the settings are "
                f"{', '.join(known)}"
            )
        try:
            _CONFIGS[asset](**values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join([where, asset, *map(str, first["loc"])])
            raise ConfigError(
                f"{place} is {first['input']!r}: {first['msg']}; correct it"
            ) from error
    return {"ops": {asset: {"config": dict(v)} for asset, v in profile.rebenchmark.items()}}


def _request(
    key: str, preset: str, run_config: Mapping[str, Any], started_by: str
) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=key,
        partition_key=preset,
        run_config=run_config,
        tags={AUTOMATIC: started_by, "speech/preset": preset},
    )


def _seen(cursor: str | None) -> dict[str, tuple[int, str]] | None:
    """Of each preset the number of the last event and the fingerprint that `new_checkpoint` saw.

    None: it has not looked yet, or what it kept is not that.
    """
    try:
        value = json.loads(cursor or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    seen: dict[str, tuple[int, str]] = {}
    for preset, pair in cast("dict[str, object]", value).items():
        match pair:
            case [int(event), str(fingerprint)] if not isinstance(event, bool):
                seen[preset] = event, fingerprint
            case _:
                return None
    return seen


def _newest_ids(instance: dg.DagsterInstance, asset: str, profile: Profile) -> Mapping[str, int]:
    """Of each preset that was materialized, the number of its newest event; numbers ascend."""
    return instance.get_latest_storage_id_by_partition(
        dg.AssetKey(asset), dg.DagsterEventType.ASSET_MATERIALIZATION, set(profile.presets)
    )


def _newest_id(instance: dg.DagsterInstance, asset: str) -> int:
    """Number of the asset's newest materialization; 0: there is none."""
    records = instance.fetch_materializations(dg.AssetKey(asset), limit=1).records
    return records[0].storage_id if records else 0
