"""Raw rows: read as they were written, or void; and what killed runs leave."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ab.clips import FOLDER, TEXTS, kept_pair, kept_row, raw_arm, raw_row, tone, whole_pair

from resources.process import process_name
from resources.store import Store
from speech_assets.ab.errors import AskError, VoidError
from speech_assets.ab.raw import pcm_of, read_pair, read_raw, run_folder, write_raw

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_raw_rows_and_audio_are_read_as_they_were_written(store: Store) -> None:
    pcm = tone(1_000)
    arm = raw_arm("a", kept_row(store, "a", pcm), kept_row(store, "a", np.zeros(0), 1))
    assert read_raw(store, "a", write_raw(store, FOLDER, arm)) == arm
    assert np.array_equal(pcm_of(store, arm.rows[0]), pcm)
    assert len(pcm_of(store, arm.rows[1])) == 0


def _delete(key: str) -> Callable[[Store, dict[str, Any]], None]:
    return lambda store, _: store.delete(f"{FOLDER}/{key}")


def _edit(key: str, old: str, new: str) -> Callable[[Store, dict[str, Any]], None]:
    def edit(store: Store, _: dict[str, Any]) -> None:
        data = store.read_bytes(f"{FOLDER}/{key}")
        assert old.encode() in data
        store.write_bytes(f"{FOLDER}/{key}", data.replace(old.encode(), new.encode()))

    return edit


def _swap(store: Store, config: dict[str, Any]) -> None:
    config["raw"]["b"] = config["raw"]["a"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_delete("a.json"), "a.json, arm A, cannot be read"),
        (_delete("b.json"), "b.json, arm B, cannot be read"),
        (_edit("b.json", "100.0", "10.0"), "b.json, arm B, is not what was measured"),
        (_delete("b/001-1.wav"), "001-1.wav, sentence 1 with seed 1, cannot be read"),
        (_edit("a/000-1.wav", "WAVE", "WAVF"), "000-1.wav, sentence 0 with seed 1, is not what"),
        (_swap, "no raw rows of arm B"),
    ],
)
def test_a_comparison_is_void_where_raw_rows_of_an_arm_are_missing_or_changed(
    store: Store, spoil: Callable[[Store, dict[str, Any]], None], says: str
) -> None:
    config = whole_pair(store)
    read_pair(store, config)
    spoil(store, config)
    with pytest.raises(VoidError) as raised:
        read_pair(store, config)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("places", "text", "says"),
    [
        ([], "", r"arm B \(preset-b\) has no raw rows"),
        ([(0, 1)], "", "arm B .* has no raw row of sentence 1 with seed 1"),
        ([(0, 1), (1, 2)], "", "has no raw row of sentence 1 with seed 1"),
        ([(0, 1), (1, 1), (1, 2)], "", "one of sentence 1 with seed 2, which was not asked"),
        ([(0, 1), (1, 1), (1, 1)], "", "among its raw rows is one twice"),
        ([(0, 1), (1, 1)], "Another text.", "asked for other sentences"),
    ],
)
def test_a_comparison_is_void_where_the_arms_have_other_clips(
    store: Store, places: list[tuple[int, int]], text: str, says: str
) -> None:
    rows = [raw_row(*place, file="") for place in places]
    if text:
        rows[-1] = replace(rows[-1], text=text)
    a = raw_arm("a", *(raw_row(n, file="") for n in TEXTS))
    config = kept_pair(store, a, raw_arm("b", *rows))
    with pytest.raises(VoidError, match=says):
        read_pair(store, config)


def test_both_arms_of_other_sentences_than_the_result_says_are_void(store: Store) -> None:
    config = {**whole_pair(store), "texts_sha256": "0" * 64}
    with pytest.raises(VoidError, match="not the sentences of the result"):
        read_pair(store, config)


def test_what_a_killed_run_left_is_removed_and_what_runs_or_has_ended_is_not(
    store: Store, tmp_path: Path
) -> None:
    code = "from resources.process import process_name; print(process_name())"
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    owners = {"killed": done.stdout.strip(), "running": process_name()}
    store.write_json("ab/another/killed/owner.json", {"process": done.stdout.strip()})
    for run, owner in owners.items():
        store.write_json(f"ab/one/{run}/owner.json", {"process": owner})
        store.write_bytes(f"ab/one/{run}/a/000-1.wav", b"RIFF")
    store.write_bytes("ab/one/ended/a.json", b"{}")
    with run_folder(store, "one", "new") as folder:
        assert store.keys(folder) == ["ab/one/new/owner.json"]
    assert not (tmp_path / "ab/one/killed").exists()
    assert not (tmp_path / "ab/another/killed").exists()
    assert store.keys("ab/one") == [
        *("ab/one/ended/a.json", "ab/one/running/a/000-1.wav", "ab/one/running/owner.json")
    ]


def fail_within(store: Store, error: BaseException) -> None:
    with run_folder(store, "one", "new") as folder:
        store.write_bytes(f"{folder}/a/000-1.wav", b"RIFF")
        raise error


def test_a_run_that_fails_or_is_interrupted_leaves_nothing(store: Store) -> None:
    for error in (ValueError("server"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail_within(store, error)
        assert store.keys("ab") == []


def test_no_second_run_takes_the_folder_of_one_that_runs(store: Store) -> None:
    with (
        run_folder(store, "one", "new"),
        pytest.raises(AskError, match="another run"),
        run_folder(store, "one", "new"),
    ):
        pass
