"""Commands that make a report's results again, as they were made, each after what it needs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from speech_assets.profiles import DEFAULT_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from speech_assets.report.evidence import Evidence, Found

PYTHON = ".venv/bin/python"
"""Of the environment that `make setup` makes, from the project's folder; README writes it so."""
_IN_ORDER = ("decode_speed", "codec_checkpoint", "wer", "load_tests", "ladder", "ab")
_STORE = f"${{SPEECH_STORE:-{DEFAULT_STORE}}}"


def commands_of(evidence: Evidence) -> tuple[str, ...]:
    """Lines for a shell in the project's folder: profile, results, and the report with its check.

    What a command took from the store when it ran (how many generations judged, which clips were
    there) is written out: in a new store it would take all there are.
    """
    made = [*_judged(evidence), *_spoken(evidence)]
    made += [_shown(found) for kind in _IN_ORDER for found in evidence.all_of(kind)]
    known = {"fidelity", *_IN_ORDER}
    made += [_shown(found) for found in evidence.results if found.value["kind"] not in known]
    return (
        f"export SPEECH_PROFILE={shlex.quote(evidence.profile)}",
        *dict.fromkeys(made),
        work_command("report"),
        # Not quoted as a word: the shell is to look up the store.
        f'{work_command("report")} --check "{_STORE}/report/index.html"',
    )


def work_command(name: str, *words: str) -> str:
    """The line that runs that work process by hand."""
    return shlex.join([PYTHON, "-m", f"speech_assets.work.{name}", *words])


def _judged(evidence: Evidence) -> Iterator[str]:
    """Generations of the base model, then each checkpoint with how far it strays."""
    found = evidence.all_of("fidelity")
    for result in found:
        config = result.value["config"]
        if how_many := config.get("calibration"):
            yield work_command(
                "calibration",
                *("--texts", str(how_many["texts"]), "--held-out", str(how_many["held_out"])),
                *("--max-tokens", f"{config['sampling']['max_tokens']:g}"),
            )
    for result in found:
        yield work_command("checkpoint", "--preset", str(result.value["name"]))
        yield _shown(result)


def _spoken(evidence: Evidence) -> Iterator[str]:
    """Samples: those that were asked for last, and those that a WER is of."""
    for preset, sheet in evidence.samples.items():
        if asked := sheet.value.get("asked"):
            yield _samples_command(preset, asked["sentences"], asked["seeds"])
    for found in evidence.all_of("wer"):
        config = found.value["config"]
        if "sentences" in config:
            for preset in dict.fromkeys((str(config["base"]), str(found.value["name"]))):
                yield _samples_command(preset, config["sentences"], found.value["seeds"])


def _samples_command(preset: str, sentences: int, seeds: Sequence[int]) -> str:
    words = ("--sentences", str(sentences), "--seeds", ",".join(map(str, seeds)))
    return work_command("samples", "--preset", preset, *words)


def _shown(found: Found) -> str:
    """The command of a result, whole: with `PYTHON`, and with what it left to the store."""
    line = " ".join(str(found.value["command"]).split())
    try:
        words = shlex.split(line)
    except ValueError:
        return line  # It is no line of ours.
    if words[:1] == ["speech-ab"]:
        words[:1] = ["python", "-m", "speech_assets.work.ab"]
    if words[:2] != ["python", "-m"]:
        return line
    given = {word.partition("=")[0] for word in words}
    for option, value in _left_out(found.value).items():
        words += [option, value] * (option not in given)
    return shlex.join([PYTHON, *words[1:]])


def _left_out(value: Mapping[str, Any]) -> dict[str, str]:
    """Options that the command may have left out, by what the result says that they were."""
    config = value["config"]
    if value["kind"] == "fidelity" and "generations" in config:
        return {"--generations": str(config["generations"])}
    if value["kind"] == "wer" and "sentences" in config:
        seeds = ",".join(map(str, value["seeds"]))
        return {"--sentences": str(config["sentences"]), "--seeds": seeds}
    return {}
