"""Commands that make a report again: each is one that its module takes, and asks for the same."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest
from report.filled import A, B, evidence_in, filled_store, put

from resources.store import Store
from speech_assets.report.commands import PYTHON, commands_of
from speech_assets.report.document import build_report
from speech_assets.report.evidence import OF_A_NAME, OF_A_PRESET
from speech_assets.results.published import PUBLISHED
from speech_assets.results.result import Figure, with_content_hash
from speech_assets.work import worker

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "speech_assets.work."


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser that the module's command has."""
    found: list[argparse.ArgumentParser] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "run", lambda _work, parser, *_: found.append(parser))
        importlib.import_module(module).main()
    [parser] = found
    return parser


def parsed(command: str) -> tuple[str, argparse.Namespace]:
    """What the module of a command is asked for; fails where it would refuse it."""
    python, option, module, *words = shlex.split(command)
    assert (python, option) == (PYTHON, "-m")
    assert module.startswith(MODULE)
    return module.removeprefix(MODULE), parser_of(module).parse_args(words)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return commands_of(evidence_in(filled_store(str(tmp_path_factory.mktemp("store")))))


def test_every_command_is_one_that_its_module_takes(commands: tuple[str, ...]) -> None:
    profile, *lines = commands
    assert profile == "export SPEECH_PROFILE=embedded"
    names = [parsed(line)[0] for line in lines]
    assert {
        "checkpoint", "fidelity", "decode_speed", "codec_checkpoint", "samples", "wer",
        "load_test", "ladder", "ab", "report",
    } == set(names)  # fmt: skip
    assert len(lines) == len(set(lines))


def test_each_comes_after_what_it_needs(commands: tuple[str, ...]) -> None:
    names = [parsed(line)[0] for line in commands[1:]]
    for first, then in (("checkpoint", "fidelity"), ("samples", "wer"), ("fidelity", "load_test")):
        assert names.index(first) < names.index(then)
    assert max(i for i, name in enumerate(names) if name == "samples") < names.index("wer")
    assert names[-2:] == ["report", "report"]


def test_the_same_sentences_seeds_and_generations_are_asked_for(
    commands: tuple[str, ...],
) -> None:
    asked = [parsed(line) for line in commands[1:]]
    samples = {(a.preset, a.sentences, a.seeds) for name, a in asked if name == "samples"}
    assert samples == {(A, 3, "1,2"), (B, 3, "1,2")}
    judged = {(a.preset, a.generations) for name, a in asked if name == "fidelity"}
    assert (A, 32) in judged
    assert 0 not in {generations for _, generations in judged}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("speech-ab --a x --b 'y,z=1'", f"{PYTHON} -m {MODULE}ab --a x --b y,z=1"),
        (f"python  -m {MODULE}ab\n--a x", f"{PYTHON} -m {MODULE}ab --a x"),
        ("make demo", "make demo"),
        ("one 'word", "one 'word"),
    ],
)
def test_a_command_of_an_earlier_form_is_shown_as_it_runs_today(
    tmp_path: Path, command: str, shown: str
) -> None:
    store = filled_store(str(tmp_path))
    [found] = evidence_in(store).all_of("ab")
    store.delete(found.key)
    store.write_json(found.key, with_content_hash({**found.value, "command": command}))
    assert shown in commands_of(evidence_in(store))


def test_a_reduced_calibration_is_made_again_as_it_was(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    path = sorted((PUBLISHED / "fidelity" / "amd-epyc" / A).glob("*.json"))[-1]
    value = json.loads(path.read_text("utf-8"))
    value["config"] |= {"generations": 8, "calibration": {"texts": 32, "held_out": 8}}
    value["config"]["sampling"]["max_tokens"] = 600
    kept = {name: value[name] for name in ("kind", "name", "config", "rows", "seeds", "command")}
    figures = {name: Figure(**figure) for name, figure in value["figures"].items()}
    put(store, **kept, figures=figures, reduced=True)
    lines = commands_of(evidence_in(store))
    name, made = parsed(lines[1])
    assert (name, made.texts, made.held_out, made.max_tokens) == ("calibration", 32, 8, 600)
    assert parsed(lines[3])[1].generations == 8


@pytest.mark.parametrize("kind", [*OF_A_PRESET, *OF_A_NAME])
def test_every_published_result_has_a_command_that_its_module_takes(kind: str) -> None:
    for path in (PUBLISHED / kind).rglob("*.json"):
        command = json.loads(path.read_text("utf-8"))["command"]
        parsed(command.replace("python", PYTHON, 1))


def test_commands_beside_what_is_missing_run_in_the_projects_environment(tmp_path: Path) -> None:
    report = build_report(Store(str(tmp_path)), evidence_in(Store(str(tmp_path))))
    missing = {section.anchor: " ".join(section.missing) for section in report.sections}
    for anchor in ("load", "listening"):
        for command in re.findall(r"`([^`]* -m [^`]*)`", missing.get(anchor, "")):
            assert parsed(command)[1].preset == "NAME"
