"""Packed weights: what they give back, and a cache that stays right whatever happens to it."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from server import packed
from server.errors import WeightsError
from server.packed import is_packed, plain_folder
from server.packed_weights import MANIFEST, SCALE, WEIGHTS, gathered
from speech_assets.voice.packed import distinct_rows, pack, quantized, runs_of

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from numpy.typing import NDArray

ROWS, LIVE = 300, 40
PROCESSES = 4


def weights() -> dict[str, NDArray[np.float16]]:
    """A matrix whose rows from LIVE on are one, another of three dimensions, and a vector."""
    rng = np.random.default_rng(0)
    table = rng.normal(0, 0.1, (ROWS, 64)).astype(np.float16)
    table[LIVE:] = table[LIVE]
    return {
        "table.weight": table,
        "conv.weight": rng.normal(0, 1, (32, 8, 7)).astype(np.float16),
        "norm.weight": rng.normal(1, 0.1, 64).astype(np.float16),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A packed folder with a small file and a page beside the weights."""
    made = tmp_path / "voice"
    pack(made, weights())
    (made / "config.json").write_text('{"vocab_size": 300}')
    (made / "CARD.md").write_text("# Card")
    return made


@settings(deadline=None)  # A time is never asserted.
@given(st.lists(st.integers(0, 6), min_size=1, max_size=60))
def test_runs_say_which_row_each_id_has(rows: list[int]) -> None:
    runs = runs_of(np.array(rows))
    table = np.arange(7, dtype=np.float16)[:, None]
    assert gathered(table, runs)[:, 0].tolist() == rows
    assert all(run.count > 0 and run.step in (0, 1) for run in runs)


@settings(deadline=None)  # A time is never asserted.
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_every_row_is_stored_once_and_found_again(rows: list[int]) -> None:
    table = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float16)[rows]
    stored, runs = distinct_rows(table)
    assert len(stored) == len(set(rows))
    assert np.array_equal(gathered(stored, runs), table)


@settings(deadline=None)  # A time is never asserted.
@given(
    st.lists(
        st.lists(st.floats(-200, 200, width=16), min_size=4, max_size=4), min_size=1, max_size=5
    )
)
def test_an_int8_value_is_off_by_half_a_step_of_its_row_at_most(rows: list[list[float]]) -> None:
    value = np.array(rows, np.float16)
    steps, scales = quantized(value)
    made = steps.astype(np.float64) * scales.astype(np.float64)[:, None]
    # The scale is rounded to 11 bits, which the largest value of a row feels 127 times.
    limit = scales.astype(np.float64)[:, None] * (0.5 + 127 * 2.0**-11)
    assert (np.abs(made - value) <= limit).all()


def test_a_folder_gives_its_weights_back_and_keeps_the_dead_rows_once(
    folder: Path, tmp_path: Path
) -> None:
    stored = load_file(folder / WEIGHTS)
    assert stored["table.weight"].shape == (LIVE + 1, 64)
    assert stored["table.weight"].dtype == stored["conv.weight"].dtype == np.int8
    assert stored["conv.weight" + SCALE].shape == (32,)
    plain = plain_folder(folder, tmp_path / "cache")
    made, wanted = load_file(plain / "model.safetensors"), weights()
    assert made.keys() == wanted.keys()
    for name, value in wanted.items():
        assert made[name].shape == value.shape
        assert made[name].dtype == np.float16
        assert np.abs(made[name] - value).max() <= np.abs(value).max() / 127
    assert np.array_equal(made["norm.weight"], wanted["norm.weight"])
    assert sorted(path.name for path in plain.iterdir()) == ["config.json", "model.safetensors"]


def test_names_that_are_kept_stay_as_they_are(tmp_path: Path) -> None:
    packing = pack(tmp_path / "voice", weights(), keep=("conv.",))
    made = load_file(plain_folder(tmp_path / "voice", tmp_path / "cache") / "model.safetensors")
    assert np.array_equal(made["conv.weight"], weights()["conv.weight"])
    assert list(packing.snr_db) == ["table.weight"]
    assert packing.snr_db["table.weight"] > 35


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"conv.weight: 1 values are not finite"):
        pack(tmp_path, {**weights(), "conv.weight": np.array([[np.inf, 1.0]])})
    assert not (tmp_path / MANIFEST).exists()


def test_a_plain_folder_is_used_as_it_is(tmp_path: Path) -> None:
    assert not is_packed(tmp_path)
    assert plain_folder(tmp_path, tmp_path / "cache") == tmp_path
    assert not (tmp_path / "cache").exists()


def test_what_is_expanded_is_used_again(folder: Path, tmp_path: Path) -> None:
    first = plain_folder(folder, tmp_path / "cache")
    inode = (first / "model.safetensors").stat().st_ino
    assert plain_folder(folder, tmp_path / "cache") == first
    assert (first / "model.safetensors").stat().st_ino == inode


def test_another_content_gets_another_place(folder: Path, tmp_path: Path) -> None:
    first = plain_folder(folder, tmp_path / "cache")
    (folder / "CARD.md").write_text("# Other words")
    assert plain_folder(folder, tmp_path / "cache") == first
    (folder / "config.json").write_text('{"vocab_size": 301}')
    second = plain_folder(folder, tmp_path / "cache")
    assert second != first
    assert (second / "config.json").read_text() == '{"vocab_size": 301}'


def cut(plain: Path) -> None:
    file = plain / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def edit(plain: Path) -> None:
    file = plain / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def replace(plain: Path) -> None:
    save_file({"table.weight": np.zeros((2, 2), np.float16)}, plain / "model.safetensors")


def lose(plain: Path) -> None:
    (plain / "config.json").unlink()


@pytest.mark.parametrize("damage", [cut, edit, replace, lose])
def test_a_damaged_expansion_is_made_again(folder: Path, tmp_path: Path, damage: Any) -> None:
    plain = plain_folder(folder, tmp_path / "cache")
    wanted = {path.name: path.read_bytes() for path in plain.iterdir()}
    damage(plain)
    assert plain_folder(folder, tmp_path / "cache") == plain
    assert {path.name: path.read_bytes() for path in plain.iterdir()} == wanted
    left = [path.name for path in (tmp_path / "cache").iterdir()]
    assert sorted(left) == [f".{plain.name}.lock", plain.name]


def test_what_a_killed_process_left_is_removed(folder: Path, tmp_path: Path) -> None:
    plain = plain_folder(folder, tmp_path / "cache")
    half = plain.rename(plain.with_name(f".{plain.name}.part"))
    cut(half)
    assert plain_folder(folder, tmp_path / "cache") == plain
    assert not half.exists()


def expand_together(folder: Path, cache: Path, barrier: Barrier, answers: Any) -> None:
    """Wait for the other processes, then expand; the answer is the folder or the error."""
    barrier.wait()
    try:
        answers.put(str(plain_folder(folder, cache)))
    except Exception as error:
        answers.put(repr(error))


def test_processes_that_start_at_once_get_one_whole_expansion(folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(PROCESSES), context.Queue()
    arguments = (folder, tmp_path / "cache", barrier, answers)
    processes = [context.Process(target=expand_together, args=arguments) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    found = {answers.get(timeout=120) for _ in processes}
    for process in processes:
        process.join()
    assert found == {str(plain_folder(folder, tmp_path / "cache"))}
    assert len(list((tmp_path / "cache").iterdir())) == 2  # The expansion and its lock.


def test_a_home_that_cannot_be_written_gives_way_to_a_temporary_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("no folder can be made below this")
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere / "cache"))
    monkeypatch.setenv("HOME", str(nowhere / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert plain_folder(folder).parent.parent == tmp_path
    monkeypatch.setattr("tempfile.tempdir", str(nowhere))
    with pytest.raises(WeightsError, match="set XDG_CACHE_HOME to a folder"):
        plain_folder(folder)


def test_the_users_cache_is_taken_first(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert plain_folder(folder).parent == tmp_path / "xdg" / "speech-assets"
    assert (tmp_path / "xdg" / "speech-assets").stat().st_mode & 0o077 == 0


def test_damaged_packed_weights_are_refused_and_a_whole_expansion_of_them_is_not(
    folder: Path, tmp_path: Path
) -> None:
    plain = plain_folder(folder, tmp_path / "cache")
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS).write_bytes(data)
    assert plain_folder(folder, tmp_path / "cache") == plain
    with pytest.raises(WeightsError, match="expands to other weights"):
        plain_folder(folder, tmp_path / "other")
    (folder / WEIGHTS).write_bytes(data[:200])
    with pytest.raises(WeightsError, match="not readable"):
        plain_folder(folder, tmp_path / "other")
    assert not [path for path in (tmp_path / "other").iterdir() if path.is_dir()]


def changed_row(value: dict[str, Any], **change: object) -> dict[str, Any]:
    """The manifest with another first row."""
    (name, row), *rest = value["tensors"].items()
    return {**value, "tensors": {name: {**row, **change}, **dict(rest)}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda value: {**value, "schema_version": 2}, "schema version 2, this program reads 1"),
        (lambda value: {**value, "tensors": {"x": {}}}, "not a manifest of packed weights"),
        (lambda _: [], "packed.json: not readable as JSON: it holds list"),
        (lambda value: {**value, "tensors": []}, "not a manifest of packed weights"),
        (lambda value: changed_row(value, shape=[1e300]), "not a manifest of packed weights"),
        (lambda value: changed_row(value, form="int4"), "not a manifest of packed weights"),
        (lambda value: changed_row(value, runs=[[0, 1 << 40, 1]]), "not a manifest of packed"),
        (lambda value: changed_row(value, runs=[["0", 1, 1]]), "not a manifest of packed weights"),
    ],
)
def test_a_manifest_of_another_form_is_refused(
    folder: Path, tmp_path: Path, change: Any, says: str
) -> None:
    value = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(change(value)))
    with pytest.raises(WeightsError, match=says):
        plain_folder(folder, tmp_path / "cache")


def test_a_manifest_that_names_what_is_not_there_is_refused(folder: Path, tmp_path: Path) -> None:
    value = json.loads((folder / MANIFEST).read_text())
    value["tensors"]["lost.weight"] = value["tensors"]["conv.weight"]
    (folder / MANIFEST).write_text(json.dumps(value))
    with pytest.raises(WeightsError, match=r"lost\.weight does not follow its manifest"):
        plain_folder(folder, tmp_path / "cache")


def test_a_lock_that_nobody_gives_back_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from filelock import FileLock

    plain = plain_folder(folder, tmp_path / "cache")
    lose(plain)
    monkeypatch.setattr(packed, "LOCK_WAIT_S", 0.0)
    with (
        FileLock(tmp_path / "cache" / f".{plain.name}.lock"),
        pytest.raises(WeightsError, match="no place to expand"),
    ):
        plain_folder(folder, tmp_path / "cache")
