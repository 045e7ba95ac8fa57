"""A ladder of presets that differ in one switch: each is served in turn and measured alike.

Every step is kept in the store as soon as it is measured (`ladder/<name>/<run>/`); a ladder that
was interrupted or killed goes on from there. The result, `results/ladder/<device>/<name>/`, has a
row per step: its outcome by the rule of `load/ladder.py`, and why.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.scratch import scratch_folder
from resources.store import Store
from server.errors import ConfigurationError
from server.presets import VARIABLE, load_preset
from speech_assets.errors import ConfigError
from speech_assets.load.ladder import (
    BASELINE,
    FULL_STEP_S,
    NOISE_SHARE,
    Ladder,
    Outcome,
    Step,
    changed,
    outcome_of,
    slug,
    superseded,
)
from speech_assets.load.ladder_file import TABLE, load_ladder
from speech_assets.load.levels import parse_levels, parse_seeds, row_from
from speech_assets.load.sweep import SweepOptions, client_faults
from speech_assets.results.provenance import device_of, place_of
from speech_assets.results.result import Figure, Result
from speech_assets.work import worker
from speech_assets.work.ladder_trials import KIND, Trial, Trials
from speech_assets.work.load_test import ClientLimitError
from speech_assets.work.sweep_arguments import (
    add_sweep_arguments,
    argument_words,
    client_limit_message,
    sweep_words,
    with_presets,
)

if TYPE_CHECKING:
    from server.presets import Preset


def main() -> None:
    """Entry point of `python -m speech_assets.work.ladder`."""
    parser = worker.argument_parser("ladder", __doc__ or "")
    add = parser.add_argument
    add("--ladder", default="embedded", help="which of the table")
    add("--table", type=Path, default=TABLE, help="TOML file of ladders")
    add_sweep_arguments(parser, usual="ladder")
    worker.run(_work, parser, argument_words(sys.argv[1:]))


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    ladder = load_ladder(arguments.ladder, arguments.table)
    preset = load_preset(ladder.preset)
    _check_values(preset, ladder)
    options = SweepOptions(
        levels=parse_levels(arguments.levels) if arguments.levels else ladder.levels,
        loads=("generating",),
        seeds=parse_seeds(arguments.seeds),
        duration_s=ladder.duration_s if arguments.duration_s is None else arguments.duration_s,
        warmup_s=ladder.warmup_s if arguments.warmup_s is None else arguments.warmup_s,
        lag_limit_ms=arguments.lag_limit_ms,
        long_texts=preset.untrained,
    )
    trials = Trials(
        Store(arguments.store),
        ladder,
        preset,
        options,
        reporter,
        client_limit_allowed=arguments.allow_client_limit,
    )
    reporter.start(len(ladder.steps) + 1, "steps")
    rows, best = climb(ladder, trials)
    result = _result(ladder, preset, options, rows, best, arguments)
    trials.store.write_json(result.key, result.as_json())
    reporter.result(KIND, key=result.key, steps=len(rows), status=result.status)
    if result.status != "complete":
        faults, levels = result.config["client_faults"], sum(len(row["levels"]) for row in rows)
        raise ClientLimitError(client_limit_message(faults, levels, trials.store.path(result.key)))
    trials.forget()


def climb(ladder: Ladder, trials: Trials) -> tuple[list[dict[str, Any]], str]:
    """Try the baseline, then each step on the best before it; a row of each, and the best's name.

    A step that `follows` another is adopted when it is better than that one and than the best.

    Raises:
        ConfigError: the baseline cannot be served.
    """
    tried = {BASELINE: trials.measure(BASELINE, dict(ladder.settings))}
    baseline = tried[BASELINE]
    if baseline.impossible or baseline.died:
        raise ConfigError(
            f"ladder {ladder.name}: its baseline cannot be served: "
            f"{baseline.impossible or baseline.died}"
        )
    rows = [_row(baseline, "baseline", ladder.note, preset=ladder.preset, note=ladder.note)]
    outcomes: dict[str, Outcome] = {}
    best = BASELINE
    for step in ladder.steps:
        followed = tried[step.follows or best]
        settings = {**followed.settings, step.switch: step.value}
        if step.needs:
            settings["device"] = step.needs
        trial = tried[step.name] = trials.measure(step.name, settings)
        outcome, why = _judge(trial, followed)
        if outcome == "adopted" and followed is not tried[best]:
            outcome, against_best = _judge(trial, tried[best])
            why = f"against {followed.name}: {why}; against {best}, the best so far: {against_best}"
        outcomes[step.name] = outcome
        rows.append(_row(trial, outcome, why, step=step, follows=followed.name))
        trials.say(f"{step.name}: {outcome}: {why}")
        if outcome == "adopted":
            best = step.name
    settings_of = {name: trial.settings for name, trial in tried.items()}
    for name, later in superseded(ladder.steps, outcomes, settings_of).items():
        row = next(row for row in rows if row["name"] == name)
        row["outcome"] = "superseded"
        row["why"] += f"; superseded by: {later}"
    return rows, best


def _judge(trial: Trial, followed: Trial) -> tuple[Outcome, str]:
    if trial.impossible:
        return "not possible", trial.impossible
    if trial.died:
        return "rejected", f"the server died under load: {trial.died}"
    return outcome_of(trial.measured, followed.measured)


def _row(
    trial: Trial,
    outcome: Outcome,
    why: str,
    *,
    step: Step | None = None,
    follows: str = "",
    preset: str = "",
    note: str = "",
) -> dict[str, Any]:
    measured = trial.measured
    return {
        "name": trial.name,
        "follows": follows,
        "preset": preset,
        "switch": step.switch if step else "",
        "value": step.value if step else None,
        "note": step.note if step else note,
        "outcome": outcome,
        "why": why,
        "settings": dict(trial.settings),
        "config_sha256": trial.config_sha256,
        "max_realtime_streams": None if trial.impossible else measured.max_streams,
        "ttfa_ms_p50": measured.ttfa_ms,
        "ttfs_ms_p50": measured.ttfs_ms,
        "rtf_p50": measured.rtf,
        "levels": [asdict(row) for row in trial.levels],
        "device": trial.device,
        "started_at": trial.started_at,
    }


def _check_values(preset: Preset, ladder: Ladder) -> None:
    """Every switch and value by the rules of presets, before the first server is started."""
    with scratch_folder("ladder") as folder:
        table = folder / "presets.toml"
        settings = {BASELINE: ladder.settings}
        settings |= {s.name: {**ladder.settings, s.switch: s.value} for s in ladder.steps}
        for name, row in settings.items():
            table.write_text(changed(preset, slug(name), row), encoding="utf-8")
            try:
                load_preset(slug(name), {VARIABLE: str(table)}).codec_location()
            except ConfigurationError as error:
                why = str(error).replace(f"{table}: presets.{slug(name)}", name)
                why = why if why.startswith(name) else f"{name}: {why}"
                raise ConfigError(f"ladder {ladder.name}: {why}") from error


def _result(
    ladder: Ladder,
    preset: Preset,
    options: SweepOptions,
    rows: list[dict[str, Any]],
    best: str,
    arguments: argparse.Namespace,
) -> Result:
    levels = [row_from(level) for row in rows for level in row["levels"]]
    faults = client_faults(levels)
    is_valid = not faults or arguments.allow_client_limit
    reached = next(row for row in rows if row["name"] == best)
    figures = {
        "max_realtime_streams_generating": Figure(reached["max_realtime_streams"], "streams"),
        "baseline_max_realtime_streams_generating": Figure(
            rows[0]["max_realtime_streams"], "streams"
        ),
        "steps": Figure(len(ladder.steps), "steps"),
    }
    for name in ("ttfa_ms_p50", "ttfs_ms_p50", "rtf_p50"):
        if reached[name] is not None:
            figures[name] = Figure(reached[name], "" if name.startswith("rtf") else "ms")
    return Result(
        kind=KIND,
        name=ladder.name,
        status="complete" if is_valid else "invalid",
        reduced=options.duration_s < FULL_STEP_S,
        started_at=rows[0]["started_at"],
        device=device_of(rows[0]["device"]),
        command=_command(ladder, options, arguments),
        config={
            "ladder": json.loads(json.dumps(asdict(ladder))),
            "preset": preset.config(),
            "sweep": asdict(options),
            "noise_share": NOISE_SHARE,
            "client_shares_cores": True,
            "client_limit_allowed": bool(arguments.allow_client_limit),
            "client_faults": faults,
        },
        seeds=options.seeds,
        rows=rows,
        figures=figures,
    )


def _command(ladder: Ladder, options: SweepOptions, arguments: argparse.Namespace) -> str:
    words = ["python", "-m", "speech_assets.work.ladder", "--ladder", ladder.name]
    if arguments.table != TABLE:
        words += ["--table", place_of(str(arguments.table))]
    return with_presets(shlex.join([*words, *sweep_words(options, arguments)]))


if __name__ == "__main__":
    main()
