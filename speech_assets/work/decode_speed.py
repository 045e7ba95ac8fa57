"""How fast a preset decodes alone: one stream, no server, and how far from what memory allows.

Each preset is measured in a process of its own (`decode_speed_child`), whose output is this one's.
`--preset` takes several, or `all` (those for this machine's device): one that fails does not keep
the others from being measured. `--random-weights orpheus-3b` times a precision without its weights.
With `--out` results are files in a folder, to be published elsewhere by `speech-results publish`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.errors import ResourceError
from resources.store import Store
from server.errors import ServerError
from server.presets import load_preset, load_presets
from speech_assets.doctor import nvidia_gpus
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quantize.quiet import Quiet, identity
from speech_assets.quantize.shapes import named_shape
from speech_assets.quantize.speed import KIND, Measured, Run, faults, figures, rows
from speech_assets.results.provenance import device_of, utc_now
from speech_assets.results.result import Result
from speech_assets.work import worker
from speech_assets.work.decode_speed_child import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

CHILD = "speech_assets.work.decode_speed_child"
ALL = "all"
SUMMARY = "summary.json"
FULL_STEPS = 420  # 60 frames, 5.1 s of speech.
FULL_RUNS = 5
PROFILE_STEPS = 56
LIMIT_S = 600.0
_END_WITHIN_S = 10.0


class DecodeSpeedError(SpeechAssetsError):
    """A preset could not be measured, or what was measured does not count."""


@dataclass(frozen=True, slots=True)
class Options:
    """How presets are measured; see `decode_speed_child.Job`."""

    store: str
    shape: str = ""
    streams: int = 1
    runs: int = FULL_RUNS
    warm_up: int = 2
    steps: int = FULL_STEPS
    profile_steps: int = 0
    limit_s: float = LIMIT_S

    @property
    def reduced(self) -> bool:
        """Whether this is less than a full measurement."""
        return self.runs < FULL_RUNS or self.steps < FULL_STEPS or self.warm_up < 1

    def command(self, preset: str) -> str:
        """The command that measures so."""
        words = ["python", "-m", "speech_assets.work.decode_speed", "--preset", preset]
        words += ["--tokens", str(self.steps), "--runs", str(self.runs)]
        words += ["--warm-up", str(self.warm_up), "--streams", str(self.streams)]
        words += ["--random-weights", self.shape] * bool(self.shape)
        words += ["--profile"] * bool(self.profile_steps)
        return shlex.join(words)


def main() -> None:
    """Entry point of `python -m speech_assets.work.decode_speed`."""
    parser = worker.argument_parser("decode_speed", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16", help=f"name, names with commas, or {ALL!r}")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--tokens", type=_at_least(1), default=FULL_STEPS, help="decode steps of a run")
    add("--runs", type=_at_least(1), default=FULL_RUNS, help="pairs: with and without the clock")
    add("--warm-up", type=_at_least(0), default=2, help="pairs before them that do not count")
    add("--streams", type=_at_least(1), default=1, help="generations at once")
    add("--random-weights", default="", metavar="SHAPE", help="orpheus-3b: no weights are needed")
    add("--profile", action="store_true", help="also say where the time of a step goes")
    add("--limit-s", type=float, default=LIMIT_S, help="end a preset that takes longer")
    add("--out", type=Path, help="folder for results as files; the store gets none")
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
        limit_s=arguments.limit_s,
    )
    if options.shape:
        named_shape(options.shape)
    names = preset_names(arguments.preset)
    outcomes: list[dict[str, Any]] = []
    for name in names:
        outcome = _outcome(name, options, arguments.out, reporter)
        outcomes.append(outcome)
        reporter.notice(_line(outcome))
        if arguments.out is not None:  # After each: what comes later may be cut off.
            _write_json(arguments.out / SUMMARY, outcomes)
    bad = [outcome for outcome in outcomes if outcome["status"] != "complete"]
    if bad:
        of_many = f" ({len(bad)} of {len(names)} presets)" if len(names) > 1 else ""
        raise DecodeSpeedError(f"preset {bad[0]['preset']}: {bad[0]['error']}{of_many}")


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


def measure(preset: str, options: Options) -> tuple[Result, list[str]]:
    """The result of one preset, measured in a process of its own, and why it does not count.

    Raises:
        DecodeSpeedError: the process failed, or took longer than the limit.
    """
    started_at = utc_now()
    value = _run_child(preset, options)
    measured = Measured(
        runs=[Run(**run) for run in value["runs"]],
        quiet=Quiet(**value["quiet"]),
        start_s=value["start_s"],
        bytes_per_step=value["bytes_per_step"],
        bandwidth_gb_per_s=value["bandwidth_gb_per_s"],
        weights_bytes=value["weights_bytes"],
        peak_memory_bytes=value["peak_memory_bytes"],
        device_memory_bytes=value.get("device_memory_bytes"),
        streams=options.streams,
        profile=value["profile"],
    )
    found = faults(measured)
    weights = "random weights" if options.shape else "real weights"
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
            "weights": "random" if options.shape else "real",
            "shape": options.shape,
            "settings": load_preset(preset).config(),
            "measurement": {k: v for k, v in asdict(options).items() if k != "store"},
            "faults": found,
            **{known: value[known] for known in names},
        },
        seeds=[run.seed for run in measured.runs],
        rows=rows(measured, weights),
        figures=figures(measured),
    )
    return result, found


def _outcome(
    name: str, options: Options, out: Path | None, reporter: worker.Reporter
) -> dict[str, Any]:
    """Measure one preset and keep its result; what became of it, a row of the summary."""
    weights = "random weights" if options.shape else "real weights"
    row: dict[str, Any] = {"preset": name, "weights": weights}
    try:
        result, found = measure(name, options)
        if out is None:
            kept = result.key
            Store(options.store).write_json(kept, result.as_json())
        else:
            kept = f"{result.name}.json"
            _write_json(out / kept, result.as_json())
    except (SpeechAssetsError, ResourceError, ServerError) as error:
        # What vLLM raises has lines of its own.
        return row | {"status": "failed", "error": " ".join(str(error).split())}
    reporter.result(KIND, key=kept, status=result.status)
    row |= {"status": result.status, "result": kept}
    if found:
        row["error"] = (
            f"the measurement does not count: {'; '.join(found)}; end what else runs, or find what "
            "captures the output, and measure again"
        )
    return row | {"figures": {key: figure.value for key, figure in result.figures.items()}}


def _run_child(preset: str, options: Options) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="decode-speed-") as folder:
        model = Path(folder) / "model"
        model.mkdir()
        job = Job(
            preset=preset,
            store=options.store,
            shape=options.shape,
            folder=str(model),
            streams=options.streams,
            runs=options.runs,
            warm_up=options.warm_up,
            steps=options.steps,
            profile_steps=options.profile_steps,
            starter_pid=os.getpid(),
            streams_of=[identity(1), identity(2)],
            out=str(Path(folder) / "measured.json"),
        )
        job_file = Path(folder) / "job.json"
        job_file.write_text(json.dumps(asdict(job)), encoding="utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        # Output is inherited: a pipe would need a thread that reads it, beside what is measured.
        child = subprocess.Popen(
            [sys.executable, "-m", CHILD, str(job_file)], stdin=subprocess.DEVNULL
        )
        try:
            code = child.wait(options.limit_s)
        except subprocess.TimeoutExpired as error:
            raise DecodeSpeedError(
                f"not measured within {options.limit_s:g} s; raise --limit-s or lower --runs"
            ) from error
        finally:
            if child.poll() is None:
                child.kill()
                child.wait(_END_WITHIN_S)
        if not Path(job.out).is_file():
            raise DecodeSpeedError(
                f"its process ended with code {code} before it had numbers; what it said stands "
                "above"
            )
        value: dict[str, Any] = json.loads(Path(job.out).read_text(encoding="utf-8"))
        if "error" in value:
            raise DecodeSpeedError(value["error"])
        return value


def _device(value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return device_of(value["device"])
    except ConfigError:  # No nvidia-smi; torch knows the chip.
        return {"name": value["chip"], "cores": os.cpu_count() or 1}


def _line(outcome: Mapping[str, Any]) -> str:
    """One line of what became of a preset."""
    if "figures" not in outcome:
        return f"{outcome['preset']}: {outcome['status']}: {outcome['error']}"
    value = outcome["figures"]
    return (
        f"{outcome['preset']}, {outcome['weights']}: {value['ms_per_token_p50']:.3g} ms a token, "
        f"{value['tokens_per_s']:.4g} tokens/s, RTF {value['rtf']:.3g}, floor "
        f"{value['floor_ms']:.3g} ms ({value['floor_share']:.0%}), started in "
        f"{value['start_s']:.1f} s, {outcome['status']}"
    )


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _at_least(least: int):
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)

    return number


if __name__ == "__main__":
    main()
