"""What streams cost, level by level: steps, what goes on beside them, threads, memory, and the GPU.

A preset's model is loaded as a server does, in a process of its own, and read by streams there:
without HTTP and clients, whose costs `load_test` has. One start measures all levels, some seconds
each. On a GPU a part of each level is traced: how long the model's kernels and the codec's run, and
how long none. `--preset` takes several, with commas; each is a result.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.store import Store
from server.errors import ServerError
from server.presets import load_preset
from speech_assets.errors import ConfigError
from speech_assets.load.cost_curve import KIND, figures
from speech_assets.load.levels import parse_levels
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.results.provenance import device_of, measurement_began
from speech_assets.results.result import Result
from speech_assets.work import measured_process, worker
from speech_assets.work.device_lock import hold_engine_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from server.presets import Preset

CHILD = "speech_assets.work.cost_curve_child"
LEVELS = "1,2,4,8,16,32,64,128,192,256,320,384,448,512"
FULL_LEVEL_S = 5.0
LIMIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Options:
    """How each preset is measured; see `cost_curve_child.Job`."""

    levels: Sequence[int]
    duration_s: float
    warm_up_s: float
    trace_s: float
    seed: int

    @property
    def reduced(self) -> bool:
        """Whether this is less than a full measurement."""
        return self.duration_s < FULL_LEVEL_S or self.warm_up_s < 1


def main() -> None:
    """Entry point of `python -m speech_assets.work.cost_curve`."""
    parser = worker.argument_parser("cost_curve", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16", help="name, or names with commas")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--levels", default=LEVELS, help="streams at once; those above a preset's are left out")
    add("--duration-s", type=worker.above_zero, default=FULL_LEVEL_S, help="timed at each level")
    add("--warmup-s", type=worker.above_zero, default=3.0, help="of load before that")
    add(
        "--trace-s",
        type=_time_or_none,
        default=0.5,
        help="traced at each level, on a GPU; 0 is none",
    )
    add("--seed", type=worker.at_least(0), default=1)
    add("--limit-s", type=worker.above_zero, default=LIMIT_S, help="end a preset that takes longer")
    add("--out", type=Path, help="folder for results as files; the store gets none")
    parser.set_defaults(
        when_interrupted="results of finished presets are kept, and the next run measures all anew"
    )
    worker.run(_work, parser)


def _time_or_none(text: str) -> float:
    value = float(text)
    if not 0 <= value < 3_600:
        raise argparse.ArgumentTypeError(f"{text} is no time in seconds, 0 or more")
    return value


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    options = Options(
        levels=[int(level) for level in parse_levels(arguments.levels)],
        duration_s=arguments.duration_s,
        warm_up_s=arguments.warmup_s,
        trace_s=arguments.trace_s,
        seed=arguments.seed,
    )
    presets = [load_preset(name.strip()) for name in arguments.preset.split(",")]
    for preset in presets:
        _levels_of(preset, options)
    failed: list[str] = []
    for preset in presets:
        try:
            with hold_engine_device(preset.device, reporter.notice):
                result = measure(preset, options, arguments.store, arguments.limit_s)
        except (measured_process.ProcessError, ServerError) as error:
            failed.append(f"preset {preset.name}: {error}")
            reporter.notice(failed[-1])
            continue
        value = result.as_json()
        if arguments.out is None:
            kept = result.key
            Store(arguments.store).write_json(kept, value)
        else:
            kept = f"{result.name}.json"
            Store(str(arguments.out)).write_json(kept, value)
        reporter.result(KIND, key=kept, status=result.status)
    if failed:
        raise measured_process.ProcessError("; ".join(failed))


def measure(preset: Preset, options: Options, store: str, limit_s: float) -> Result:
    """All levels of one preset, measured in a process of its own.

    Raises:
        ProcessError: the process failed, or took longer than `limit_s`.
    """
    started_at = measurement_began()
    levels = _levels_of(preset, options)
    job = {**asdict(options), "levels": levels, "preset": preset.name, "store": store}
    value = measured_process.run(CHILD, job, limit_s)
    rows: list[Mapping[str, Any]] = value["rows"]
    words = ["python", "-m", "speech_assets.work.cost_curve", "--preset", preset.name]
    words += ["--levels", ",".join(map(str, levels)), "--duration-s", f"{options.duration_s:g}"]
    words += ["--warmup-s", f"{options.warm_up_s:g}", "--trace-s", f"{options.trace_s:g}"]
    return Result(
        kind=KIND,
        name=preset.name,
        reduced=options.reduced,
        started_at=started_at,
        device=device_of(value["device"]),
        command=" ".join([*words, "--seed", str(options.seed)]),
        config={
            "preset": preset.name,
            "weights": "random" if preset.untrained else "real",
            "measurement": asdict(options),
            "start_s": value["start_s"],
            "context_tokens": value["context_tokens"],
            "served": value["served"],
        },
        seeds=[options.seed],
        rows=rows,
        figures=figures(rows),
    )


def _levels_of(preset: Preset, options: Options) -> list[int]:
    """The levels that the preset takes.

    Raises:
        ConfigError: it takes none.
    """
    levels = [level for level in options.levels if level <= preset.max_streams]
    if not levels:
        raise ConfigError(
            f"--levels {','.join(map(str, options.levels))}: preset {preset.name} takes at most "
            f"{preset.max_streams} streams (max_streams); ask for fewer"
        )
    return levels


if __name__ == "__main__":
    main()
