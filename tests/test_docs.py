"""What the pages tell people to write and call, against the code: files, fields, commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from server import frames
from server.checkpoint import open_checkpoint
from server.errors import WeightsError
from server.presets import load_presets
from speech_assets.profiles import load_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
CHECKPOINTS = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
LAYOUT = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
VOICE = ROOT / "server" / "embedded" / "voice"
FIELDS = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", LAYOUT, re.MULTILINE))
"""Of layout.json, by name: whether each must be there."""


class Asked(dict[str, Any]):
    """An object that notes which fields are asked for."""

    names: set[str]

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.names = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def blocks(language: str) -> Iterator[str]:
    """The blocks of that language in the walkthrough of a fine-tune."""
    walkthrough = CHECKPOINTS.split("## Your fine-tune")[1].split("\n## ")[0]
    yield from re.findall(rf"^```{language}\n(.*?)^```$", walkthrough, re.MULTILINE | re.DOTALL)


def layout_with_voice_ids() -> dict[str, Any]:
    """The layout of the voice that ships, its voice with an id of its own."""
    value = json.loads((VOICE / "layout.json").read_text("utf-8"))
    order = ["begin", "voice", "phonemes", "end_of_text", "start_of_speech"]
    return {**value, "prompt_order": order, "voice_base": 8}


def read(value: dict[str, Any], folder: Path) -> frames.TokenLayout:
    (folder / "layout.json").write_text(json.dumps(value), encoding="utf-8")
    return frames.read_layout(folder)


def test_the_page_of_layouts_has_every_field_that_is_read_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = Asked(layout_with_voice_ids())
    (tmp_path / "layout.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(frames, "read_json", lambda *_: value)
    assert frames.read_layout(tmp_path).voice_base == 8
    named = {"begin", "end_of_text", "start_of_speech"}  # By `prompt_order`.
    assert named < value.names
    assert value.names - named == set(FIELDS)
    assert all(f"`{name}`" in LAYOUT for name in [*named, *value["sampling"]])


def test_the_page_of_layouts_says_which_fields_must_be_there(tmp_path: Path) -> None:
    whole = layout_with_voice_ids()
    read(whole, tmp_path)
    for name, needed in FIELDS.items():
        without = {known: value for known, value in whole.items() if known != name}
        if needed.startswith("no"):
            read(without, tmp_path)
        else:
            with pytest.raises(WeightsError, match=f"field '{name}' is missing"):
                read(without, tmp_path)
    assert read({**whole, "of_no_use": 1}, tmp_path) == read(whole, tmp_path)
    assert f"audio_base + {frames.CODEBOOK_SIZE * frames.TOKENS_PER_FRAME}" in LAYOUT


def test_the_command_that_unpacks_the_voice_prints_a_folder_that_loads(tmp_path: Path) -> None:
    [line] = re.findall(r"^\.venv/bin/python -c .*$", LAYOUT, re.MULTILINE)
    _, option, code = shlex.split(line)
    done = subprocess.run(
        [sys.executable, option, code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folder = Path(done.stdout.strip())
    assert open_checkpoint(folder).folder == folder


def test_the_files_of_the_walkthrough_are_read_and_their_folders_looked_up_from_them(
    tmp_path: Path,
) -> None:
    presets, profiles = blocks("toml")
    (tmp_path / "profiles.toml").write_text(profiles, encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "presets.toml").write_text(presets.replace("/models/mine", "mine"), "utf-8")
    environment = {
        "SPEECH_PRESETS": str(tmp_path / "presets.toml"),
        "SPEECH_PROFILES": str(tmp_path / "profiles.toml"),
        "SPEECH_PROFILE": "mine",
    }
    rows = load_presets(environment)
    for name in load_profile(environment).presets:
        assert rows[name].base_location().folder == tmp_path / "mine"
        assert rows[name].checkpoint is not None


def test_the_commands_of_the_walkthrough_give_config_that_assets_have() -> None:
    from speech_assets.definitions import build_definitions

    defs = build_definitions()
    given = re.findall(r"'(\{\"ops\": .*\})'", CHECKPOINTS)
    assert len(given) == 3
    for text in given:
        for asset, row in json.loads(text)["ops"].items():
            definition = defs.get_assets_def(asset)
            fields = definition.op.config_schema.as_field().config_type.fields
            assert set(row["config"]) <= set(fields), asset


AUTOMATION = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8")


def test_the_commands_of_automation_are_dagsters_and_name_what_there_is() -> None:
    from click import Command, Context, Group
    from dagster._cli import create_dagster_cli

    from speech_assets.definitions import build_definitions

    defs = build_definitions()
    automations = {one.name for one in [*(defs.sensors or ()), *(defs.schedules or ())]}
    lines = re.findall(r"\.venv/bin/(dagster [^`\n]*)", AUTOMATION)
    stopped: set[str] = set()
    for line in lines:
        _, *words = shlex.split(line)
        command: Command = create_dagster_cli()
        context = Context(command)
        while isinstance(command, Group):
            found = command.get_command(context, words[0])
            assert found is not None, line
            command, words = found, words[1:]
        with command.make_context("dagster", words) as parsed:
            for option in ("schedule_name", "sensor_name"):
                name = parsed.params.get(option) or ()
                assert {name} <= automations or set(name) <= automations, line
        if " stop " in line:
            stopped.add(shlex.split(line)[3])
    assert stopped == automations


def test_a_page_says_of_just_the_tables_without_a_result_that_it_is_not_yet_published() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = " ".join(page.read_text(encoding="utf-8").split())
        for table in re.finditer(r"<!-- results: (\S+) -->", text):
            lead = text[: table.start()].rpartition("<!-- /results -->")[2]
            is_empty = text[table.end() :].startswith(" No result is published yet.")
            assert ("not yet published" in lead) == is_empty, f"{page.name}: {table[1]}"


def test_every_block_of_shell_is_shell() -> None:
    for block in blocks("sh"):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert not done.stderr
