"""A JSON file is the old one or the new one, whatever becomes of who writes it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

import pytest

from server.errors import WeightsError
from server.files import is_plain_name, read_json, sha256_of, write_json

if TYPE_CHECKING:
    from pathlib import Path


def test_a_value_is_read_back_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "below" / "it.json"
    write_json(path, {"a": [1, None, "é"]})
    assert json.loads(path.read_text("utf-8")) == {"a": [1, None, "é"]}
    write_json(path, [])
    assert path.read_text("utf-8") == "[]\n"
    assert [p.name for p in path.parent.iterdir()] == ["it.json"]
    assert sha256_of(path) == hashlib.sha256(b"[]\n").hexdigest()


def test_what_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    write_json(path, "old")
    with pytest.raises(TypeError):
        write_json(path, {1, 2})
    assert [p.read_text() for p in tmp_path.iterdir()] == ['"old"\n']


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": ' * 100_000, "nested deeper than 32 levels"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "nested deeper than 32 levels"),
        ('{"a": -1e999}', "-1e999 is no finite number"),
        ('{"a": [NaN]}', "NaN is no finite number"),
        ('{"a": 1, "a": 1}', "'a' stands there twice"),
        ("3", "it holds int, need an object"),
        ('{"a": ' + "1" * 5_000 + "}", "integer string conversion"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_json_object_is_the_projects_own_error(
    tmp_path: Path, text: str, fault: str
) -> None:
    path = tmp_path / "it.json"
    path.write_text(text)
    with pytest.raises(WeightsError, match=fault) as caught:
        read_json(path, remedy="make it again")
    assert str(caught.value).startswith(f"{path}: not readable as JSON: ")
    assert str(caught.value).endswith("; make it again")
    with pytest.raises(WeightsError, match=r"not readable as JSON: .*Is a directory"):
        read_json(tmp_path)
    with pytest.raises(WeightsError, match="no such file; look elsewhere"):
        read_json(tmp_path / "none.json", absent="look elsewhere")


def test_names_of_folders_are_plain() -> None:
    assert all(map(is_plain_name, ("a", "embedded-w4a16", "0.5_b", "A" * 100)))
    bad = ("", " ", ".", "..", "../x", "a/b", "a\\b", ".x.lock", "a\0", "a\n", "-a", "ü", "a" * 101)
    assert not any(map(is_plain_name, bad))


def _write_and_die(path: Path) -> None:
    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    write_json(path, "new")


def test_a_process_that_is_killed_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    write_json(path, "old")
    process = multiprocessing.get_context("fork").Process(target=_write_and_die, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert path.read_text() == '"old"\n'
