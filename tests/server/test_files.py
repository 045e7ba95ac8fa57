"""A JSON file is the old one or the new one, whatever becomes of who writes it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

import pytest

from server.files import sha256_of, write_json

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
