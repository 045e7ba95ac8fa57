"""One preset's decode speed, measured in processes of its own, and the result that comes of it."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from server.presets import load_preset
from speech_assets.errors import ConfigError
from speech_assets.quantize.quiet import Quiet, identity
from speech_assets.quantize.speed import KIND, Measured, Run, faults, figures, rows
from speech_assets.results.provenance import device_of, utc_now
from speech_assets.results.result import Result
from speech_assets.work import measured_process

if TYPE_CHECKING:
    from collections.abc import Mapping

CHILD = "speech_assets.work.decode_speed_child"
FULL_STEPS = 420
"""Of a run: 60 frames, 5.1 s of speech."""
FULL_RUNS = 5
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Options:
    """How presets are measured; see `decode_speed_child.Job`.

    `starts` processes are started, each of which times its start; the last one decodes, too.
    """

    store: str
    shape: str = ""
    streams: int = 1
    runs: int = FULL_RUNS
    warm_up: int = 2
    steps: int = FULL_STEPS
    profile_steps: int = 0
    starts: int = 1
    limit_s: float = LIMIT_S

    @property
    def weights(self) -> Literal["random", "real"]:
        """What the weights are."""
        return "random" if self.shape else "real"

    @property
    def reduced(self) -> bool:
        """Whether this is less than a full measurement."""
        return self.runs < FULL_RUNS or self.steps < FULL_STEPS or self.warm_up < 1

    def command(self, preset: str) -> str:
        """The command that measures so."""
        words = ["python", "-m", "speech_assets.work.decode_speed", "--preset", preset]
        words += ["--tokens", str(self.steps), "--runs", str(self.runs)]
        words += ["--warm-up", str(self.warm_up), "--streams", str(self.streams)]
        words += ["--starts", str(self.starts)] * (self.starts > 1)
        words += ["--random-weights", self.shape] * bool(self.shape)
        words += ["--profile"] * bool(self.profile_steps)
        return shlex.join(words)


def measure(preset: str, options: Options) -> tuple[Result, list[str]]:
    """The result of one preset, and why it does not count.

    Raises:
        NotForDeviceError: the device does not run what the preset serves.
        ProcessError: a process failed, or took longer than the limit.
    """
    started_at = utc_now()
    starts = [_run_child(preset, options, runs=0)["start_s"] for _ in range(options.starts - 1)]
    value = _run_child(preset, options, runs=options.runs)
    measured = Measured(
        runs=[Run(**run) for run in value["runs"]],
        quiet=Quiet(**value["quiet"]),
        starts_s=[*starts, value["start_s"]],
        bytes_per_step=value["bytes_per_step"],
        bandwidth_gb_per_s=value["bandwidth_gb_per_s"],
        weights_bytes=value["weights_bytes"],
        memory_bytes=value["memory_bytes"],
        peak_memory_bytes=value["peak_memory_bytes"],
        device_memory_bytes=value.get("device_memory_bytes"),
        streams=options.streams,
        profile=value["profile"],
    )
    found = faults(measured)
    name = f"{preset}-random-{options.shape}" if options.shape else preset
    names = ("scheme", "engine", "prompt_tokens", "sampling", "threads", "reads", "quiet")
    result = Result(
        kind=KIND,
        name=name if options.streams == 1 else f"{name}-{options.streams}-streams",
        status="invalid" if found else "complete",
        reduced=options.reduced,
        started_at=started_at,
        device=_device(value),
        command=options.command(preset),
        config={
            "preset": preset,
            "weights": options.weights,
            "shape": options.shape,
            "settings": load_preset(preset).config(),
            "measurement": {k: v for k, v in asdict(options).items() if k != "store"},
            "starts_s": list(measured.starts_s),
            "memory_bytes": list(measured.memory_bytes),
            "faults": found,
            **{known: value[known] for known in names},
        },
        seeds=[run.seed for run in measured.runs],
        rows=rows(measured, f"{options.weights} weights"),
        figures=figures(measured),
    )
    return result, found


def _run_child(preset: str, options: Options, *, runs: int) -> Mapping[str, Any]:
    """What a process of its own measured; of `runs` 0 its start alone."""
    job = {
        "preset": preset,
        "store": options.store,
        "shape": options.shape,
        "streams": options.streams,
        "runs": runs,
        "warm_up": options.warm_up,
        "steps": options.steps,
        "profile_steps": options.profile_steps,
        "std_identities": [identity(1), identity(2)],
    }
    return measured_process.run(CHILD, job, options.limit_s)


def _device(value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return device_of(value["device"])
    except ConfigError:  # No nvidia-smi; torch knows the chip.
        return {"name": value["chip"], "cores": os.cpu_count() or 1}
