"""A folder that is put in its place: at every moment whole, the older one, or soon mended."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
from filelock import Timeout
from killed_writer import write_and_die

from server import whole_folder
from server.whole_folder import locked, part_of, replace

OLD, NEW = {"a": "old a", "b": "old b"}, {"a": "new a", "deep/c": "new c"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def read(folder: Path) -> dict[str, str] | None:
    if not folder.exists():
        return None
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def put(target: Path, files: dict[str, str]) -> None:
    with locked(target, 0.0):
        write(part_of(target), files)
        replace(target)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_folder_is_put_there_and_then_another_in_its_place(tmp_path: Path) -> None:
    target = tmp_path / "below" / "it"
    put(target, OLD)
    assert read(target) == OLD
    put(target, NEW)
    assert read(target) == NEW
    assert names(target.parent) == ["it"]


def test_a_process_that_is_killed_at_any_step_leaves_the_old_or_the_new_one(
    tmp_path: Path,
) -> None:
    """At each flush, rename and removal in turn. The next one that locks finds one of the two."""
    found: list[str] = []
    code = -signal.SIGKILL
    while code != 0:
        target = tmp_path / str(len(found)) / "it"
        put(target, OLD)
        code = write_and_die(partial(put, target, NEW), after=len(found))
        assert read(target) in (OLD, NEW, None)
        with locked(target, 10.0):
            left = read(target)
            assert names(target.parent) == ["it"]
        assert left in (OLD, NEW)
        found.append("old" if left == OLD else "new")
    assert found == sorted(found, reverse=True)  # Once the new one is there it stays.
    assert {"old", "new"} == set(found)
    assert len(found) > 8


def test_everything_is_on_the_disk_before_the_old_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "it"
    put(target, OLD)
    synced: list[str] = []
    rename = Path.rename

    def watched(path: Path, to: Path) -> Path:
        synced.append(f"{path.name} -> {to.name}")
        return rename(path, to)

    monkeypatch.setattr(whole_folder, "sync", lambda path: synced.append(path.name))
    monkeypatch.setattr(Path, "rename", watched)
    put(target, NEW)
    assert sorted(synced[:4]) == [".it.part", "a", "c", "deep"]
    assert synced[4:] == ["it -> .it.old", ".it.part -> it", tmp_path.name]


def test_a_folder_of_others_is_not_replaced(tmp_path: Path) -> None:
    """A target whose name was lost is the folder that all of them are in."""
    for name in ("a", "b"):
        put(tmp_path / "all" / name, OLD)
    assert any(path.name.endswith(".lock") for path in (tmp_path / "all").iterdir())
    with pytest.raises(OSError, match=r"holds '\..\.lock', which is not its own"):
        put(tmp_path / "all", NEW)
    for lock in (tmp_path / "all").glob(".*.lock"):
        lock.unlink()
    with pytest.raises(OSError, match="holds 'a', which is not its own"):
        put(tmp_path / "all", NEW)
    assert read(tmp_path / "all" / "a") == read(tmp_path / "all" / "b") == OLD
    put(tmp_path / "all" / "a", NEW)
    put(tmp_path / "all" / "a", NEW)  # Its own folders may go.
    for name in ("..", "."):
        with pytest.raises(OSError, match="not the name of a folder"):
            put(Path("/", name), NEW)


def test_one_at_a_time_has_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path / "it", 0.0), pytest.raises(Timeout), locked(tmp_path / "it", 0.0):
        pass
    with locked(tmp_path / "it", 0.0):
        pass


def test_what_cannot_be_put_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "it"
    put(target, OLD)
    with pytest.raises(FileNotFoundError), locked(target, 0.0):
        replace(target)  # There is no part.
    assert read(target) == OLD
