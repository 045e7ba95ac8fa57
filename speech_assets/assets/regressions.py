"""Checks of what is measured again and again: no figure is worse than in the last run."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as an object.
from typing import Any

import dagster as dg

from resources.configured import StoreResource
from speech_assets.assets.failures import ERRORS
from speech_assets.notes import Note, tell
from speech_assets.profiles import Profile

CHECKED = ("load_tests", "wer", "decode_speed")
"""Assets, whose results have the same name for their kind."""
NAME = "no_regression"
AUTOMATIC = "speech/started_by"
"""Tag of runs that a schedule or sensor of the project has started; its value names it."""
RESULT = "result"
"""Where an asset's metadata says which result it has made (`result_metadata`)."""
_LOOKED_AT = 10
_PARTS_OF_KEY = 5  # results/<kind>/<device>/<name>/<run>.json


def regression_checks(profile: Profile) -> list[Any]:
    """The check `no_regression` of each asset that is measured for presets."""
    presets = dg.StaticPartitionsDefinition(list(profile.presets))
    return [_check_of(kind, presets) for kind in CHECKED]


def _check_of(kind: str, presets: dg.PartitionsDefinition) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=kind,
        name=NAME,
        description="The result just made is not worse than the last one of the same preset on the "
        "same device, beyond the noise that its earlier results show. Where there is nothing to "
        "compare with, or too little to tell, it passes and says so.",
        # A preview in Dagster 1.13, and worth it: without, one preset's outcome hides another's.
        partitions_def=presets,
    )
    def no_regression(
        context: dg.AssetCheckExecutionContext, store: StoreResource
    ) -> dg.AssetCheckResult:
        # Here, and not above: it loads pandas, and importing the definitions must stay quick.
        from speech_assets.history.judgement import judge

        if not context.op_execution_context.has_partition_key:
            # Dagster 1.13 launches a check alone without a partition.
            raise dg.Failure(f"{NAME} is of a preset; materialize {kind} of one, it is made after")
        preset = context.op_execution_context.partition_key
        try:
            key = _key_of_result(context, kind, preset)
            judged = judge(store.store(), kind, preset, key)
        except ERRORS as error:
            raise dg.Failure(str(error)) from error
        if judged.found and (started_by := context.run.tags.get(AUTOMATIC)):
            # Of a run that a person has started, that person sees the outcome.
            note = _note(kind, preset, judged.text, context.run.run_id, started_by)
            tell(note, store.store(), context.log)
        metadata: dict[str, Any] = {
            "regressions": dg.MetadataValue.int(len(judged.found)),
            "earlier_runs": dg.MetadataValue.int(judged.compared_runs),
            # Passed says that nothing was found; whether anything could be, this does.
            "can_tell": dg.MetadataValue.bool(judged.can_tell),
        }
        if judged.table:
            metadata["history"] = dg.MetadataValue.md(judged.table)
        return dg.AssetCheckResult(
            passed=not judged.found,
            # The result is sound and kept; a figure that is worse is an answer, for a person to
            # weigh, and not a fault of the run.
            severity=dg.AssetCheckSeverity.WARN,
            description=judged.text,
            metadata=metadata,
        )

    return no_regression


def _key_of_result(context: dg.AssetCheckExecutionContext, kind: str, preset: str) -> str:
    """Key of the result that this run has made, as the asset has recorded it.

    Of a run that goes on after a failure, an earlier one has: it is the newest that was recorded.
    Not the newest by its name: the clock of another run may have been wrong.
    """
    wanted = dg.AssetRecordsFilter(dg.AssetKey(kind), asset_partitions=[preset])
    records = context.instance.fetch_materializations(wanted, limit=_LOOKED_AT).records
    made = next((one for one in records if one.run_id == context.run.run_id), None)
    for one in [made] if made else records[:1]:
        recorded = one.asset_materialization
        path = recorded.metadata.get(RESULT) if recorded else None
        if path is not None:
            # Its tail, so that a store which was moved since has it, too.
            return "/".join(str(path.value).split("/")[-_PARTS_OF_KEY:])
    raise dg.Failure(
        f"no result of {kind} of {preset} is recorded; materialize {kind} of it, {NAME} is made "
        "after"
    )


def _note(kind: str, preset: str, text: str, run_id: str, started_by: str) -> Note:
    return Note(
        kind="regressions",
        name=f"{run_id}-{kind}",
        title=f"{kind} of {preset} is worse than in its last run",
        why=text,
        next_steps=(
            f"Measure it once more: materialize {kind} of {preset}. What was chance does not come "
            "twice.",
            "Where it stays, look at what has changed since, named above, and at what else runs on "
            "the machine.",
            f"The history is in the check {NAME} of {kind}, on the asset's page.",
        ),
        facts={"run": run_id, "asset": kind, "preset": preset, "started by": started_by},
    )
