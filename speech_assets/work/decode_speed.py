"""How fast a preset decodes alone: one stream, no server, and how far from what memory allows.

Each preset is measured in a process of its own (`decode_speed_child`), whose output is this one's.
`--preset` takes several, or `all` (those for this machine's device): one that fails does not keep
the others from being measured. `--random-weights orpheus-3b` times a precision without its weights.
With `--out` results are files in a folder, to be published elsewhere by `speech-results publish`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.errors import ResourceError
from resources.store import Store
from server.errors import ServerError
from server.presets import load_preset, load_presets
from speech_assets.doctor import nvidia_gpus
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quantize.shapes import named_shape
from speech_assets.quantize.speed import KIND
from speech_assets.work import worker
from speech_assets.work.decode_measurement import (
    FULL_RUNS,
    FULL_STEPS,
    LIMIT_S,
    Options,
    measure,
)
from speech_assets.work.device_lock import hold_engine_device
from speech_assets.work.measured_process import NotForDeviceError, ProcessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL = "all"
SUMMARY = "summary.json"
PROFILE_STEPS = 56


def main() -> None:
    """Entry point of `python -m speech_assets.work.decode_speed`."""
    parser = worker.argument_parser("decode_speed", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16", help=f"name, names with commas, or {ALL!r}")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    number = worker.at_least(1)
    add("--tokens", type=number, default=FULL_STEPS, help="decode steps of a run")
    add("--runs", type=number, default=FULL_RUNS, help="pairs: with and without the clock")
    add("--warm-up", type=worker.at_least(0), default=2, help="pairs before them, not counted")
    add("--streams", type=number, default=1, help="generations at once")
    add("--starts", type=number, default=1, help="processes that time their start; one decodes")
    add("--random-weights", default="", metavar="SHAPE", help="orpheus-3b: no weights are needed")
    add("--profile", action="store_true", help="also say where the time of a step goes")
    add(
        "--limit-s", type=worker.above_zero, default=LIMIT_S, help="end a process that takes longer"
    )
    add("--out", type=Path, help="folder for results as files; the store gets none")
    add("--allow-invalid", action="store_true", help="a measurement that does not count is kept "
        "as such, and no failure")  # fmt: skip
    parser.set_defaults(
        when_interrupted="results of finished presets are kept, and the next run measures all anew"
    )
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    options = Options(
        store=arguments.store,
        shape=arguments.random_weights,
        streams=arguments.streams,
        runs=arguments.runs,
        warm_up=arguments.warm_up,
        steps=arguments.tokens,
        profile_steps=PROFILE_STEPS if arguments.profile else 0,
        starts=arguments.starts,
        limit_s=arguments.limit_s,
    )
    if options.shape:
        named_shape(options.shape)
    names = preset_names(arguments.preset)
    check_streams(names, options.streams)
    outcomes: list[dict[str, Any]] = []
    for name in names:
        outcome = _outcome(name, options, arguments.out, reporter)
        outcomes.append(outcome)
        reporter.notice(_line(outcome))
        if arguments.out is not None:  # After each: what comes later may be cut off.
            Store(str(arguments.out)).write_json(SUMMARY, outcomes)
    forgiven = ("complete", "invalid") if arguments.allow_invalid else ("complete",)
    bad = [outcome for outcome in outcomes if outcome["status"] not in forgiven]
    if bad:
        of_many = f" ({len(bad)} of {len(names)} presets)" if len(names) > 1 else ""
        skips = all(outcome["status"] == "skipped" for outcome in bad)
        raise (NotForDeviceError if skips else ProcessError)(
            f"preset {bad[0]['preset']}: {bad[0]['error']}{of_many}"
        )


def preset_names(text: str) -> list[str]:
    """Names of the presets that `--preset` asks for.

    `all` is every preset that is for a GPU where there is one, and every other where there is none.

    Raises:
        ConfigurationError: one is unknown.
    """
    if text == ALL:
        has_gpu = bool(nvidia_gpus())
        return [name for name, p in load_presets().items() if (p.device == "cuda") == has_gpu]
    return [load_preset(name.strip()).name for name in text.split(",")]


def check_streams(names: Sequence[str], streams: int) -> None:
    """Raises ConfigError where a preset's engine takes fewer generations at once."""
    for name in names:
        most = load_preset(name).max_streams
        if streams > most:
            raise ConfigError(
                f"--streams {streams}: preset {name} has {most} (max_streams); ask for fewer, or "
                "measure a preset of yours with more"
            )


def _outcome(
    name: str, options: Options, out: Path | None, reporter: worker.Reporter
) -> dict[str, Any]:
    """Measure one preset and keep its result; what became of it, a row of the summary."""
    row: dict[str, Any] = {"preset": name, "weights": f"{options.weights} weights"}
    try:
        with hold_engine_device(load_preset(name).device, reporter.notice):
            result, found = measure(name, options)
        if out is None:
            kept = result.key
            Store(options.store).write_json(kept, result.as_json())
        else:
            kept = f"{result.name}.json"
            Store(str(out)).write_json(kept, result.as_json())
    except (SpeechAssetsError, ResourceError, ServerError) as error:
        status = "skipped" if getattr(error, "skips", False) else "failed"
        # What vLLM raises has lines of its own.
        return row | {"status": status, "error": " ".join(str(error).split())}
    reporter.result(KIND, key=kept, status=result.status)
    row |= {"status": result.status, "result": kept}
    if found:
        row["error"] = (
            f"the measurement does not count: {'; '.join(found)}; end what else runs, or find what "
            "captures the output, and measure again"
        )
    return row | {"figures": {key: figure.value for key, figure in result.figures.items()}}


def _line(outcome: Mapping[str, Any]) -> str:
    """One line of what became of a preset."""
    if "figures" not in outcome:
        return f"{outcome['preset']}: {outcome['status']}: {outcome['error']}"
    value = outcome["figures"]
    status = f"{outcome['status']}: {outcome['error']}" if "error" in outcome else "complete"
    return (
        f"{outcome['preset']}, {outcome['weights']}: {value['ms_per_token_p50']:.3g} ms a token, "
        f"{value['tokens_per_s']:.4g} tokens/s, RTF {value['rtf']:.3g}, floor "
        f"{value['floor_ms']:.3g} ms ({value['floor_share']:.0%}), started in "
        f"{value['start_s']:.1f} s, {status}"
    )


if __name__ == "__main__":
    main()
