"""Checks of a checkpoint: of these very weights and settings, all passed, or it is not served."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from server import checks, loading
from server.checks import (
    REQUIRED,
    Check,
    Served,
    read_checks,
    require_checks,
    weights_sha256,
    write_check,
)
from server.errors import WeightsError
from server.presets import load_preset, served_as

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

PASSED = Check(passed=True, detail="as it must be", value=0.01, limit=0.05)
FAILED = Check(passed=False, detail="mean KL 0.3 nats", value=0.3, limit=0.05)
SERVED = Served("weights", "settings", "cpu", {"fidelity": 0.05})
WRITERS = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "small" / "checks.json"


def pass_all(path: Path, served: Served = SERVED) -> None:
    for name in REQUIRED:
        write_check(path, served, name, PASSED)


def test_what_passed_all_its_checks_is_served(path: Path) -> None:
    pass_all(path)
    require_checks(path, SERVED, "small")
    assert read_checks(path, SERVED) == dict.fromkeys(REQUIRED, PASSED)
    assert [p.name for p in path.parent.iterdir()] == ["checks.json"]


def test_a_check_that_was_never_made_is_named(path: Path) -> None:
    with pytest.raises(WeightsError, match=r"engine was not made of these .*; fidelity was"):
        require_checks(path, SERVED, "small")
    write_check(path, SERVED, "engine", PASSED)
    with pytest.raises(WeightsError, match=r"\(fidelity was not made.*--allow-unchecked"):
        require_checks(path, SERVED, "small")


def test_a_check_that_failed_is_named_with_what_was_found(path: Path) -> None:
    pass_all(path)
    write_check(path, SERVED, "fidelity", FAILED)
    with pytest.raises(WeightsError, match=r"preset small .*fidelity: mean KL 0\.3 nats") as found:
        require_checks(path, SERVED, "small")
    for remedy in ("more calibration texts", "group_size", "fp8", "max_mean_kl_nats"):
        assert remedy in str(found.value)


@pytest.mark.parametrize(
    "other",
    [replace(SERVED, weights_sha256="others"), replace(SERVED, settings_sha256="others")],
)
def test_checks_of_other_weights_or_settings_count_for_nothing(path: Path, other: Served) -> None:
    pass_all(path)
    assert read_checks(path, other) == {}
    with pytest.raises(WeightsError, match="was not made of these weights and settings"):
        require_checks(path, other, "small")
    write_check(path, other, "engine", PASSED)
    assert list(read_checks(path, other)) == ["engine"]
    assert read_checks(path, SERVED) == {}


def test_a_check_by_another_limit_than_the_presets_does_not_count(path: Path) -> None:
    pass_all(path)
    stricter = replace(SERVED, limits={"fidelity": 0.005})
    assert list(read_checks(path, stricter)) == ["engine"]
    with pytest.raises(WeightsError, match=r"\(fidelity was not made of these"):
        require_checks(path, stricter, "small")


def test_a_check_by_an_older_version_of_it_does_not_count(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_all(path)
    monkeypatch.setitem(checks.REQUIRED, "engine", "2")
    assert list(read_checks(path, SERVED)) == ["fidelity"]
    write_check(path, SERVED, "engine", PASSED)
    require_checks(path, SERVED, "small")


def test_a_file_from_before_settings_counted_is_made_again(path: Path) -> None:
    path.parent.mkdir(parents=True)
    old = {"engine": {"passed": True, "detail": "", "value": 0.0, "limit": 0.1}}
    path.write_text(json.dumps({"schema_version": 1, "weights_sha256": "weights", "checks": old}))
    with pytest.raises(WeightsError, match="engine was not made of these"):
        require_checks(path, SERVED, "small")
    pass_all(path)
    require_checks(path, SERVED, "small")


def test_checks_of_another_device_do_not_count_and_stay(path: Path) -> None:
    pass_all(path)
    on_gpu = replace(SERVED, device="cuda")
    with pytest.raises(WeightsError, match=r"settings on cuda, only on cpu; fidelity was not"):
        require_checks(path, on_gpu, "small")
    write_check(path, on_gpu, "fidelity", FAILED)
    require_checks(path, SERVED, "small")
    assert read_checks(path, on_gpu) == {"fidelity": FAILED}


REDUCED = replace(PASSED, detail="of few", generations=2, reduced=True)
WHOLE = replace(FAILED, detail="of all", generations=32)


def test_a_reduced_run_takes_no_whole_ones_place_and_a_whole_one_takes_its(path: Path) -> None:
    assert write_check(path, SERVED, "fidelity", REDUCED) == REDUCED
    write_check(path, SERVED, "engine", PASSED)
    assert require_checks(path, SERVED, "small")["fidelity"].reduced
    again = replace(REDUCED, generations=3)
    assert write_check(path, SERVED, "fidelity", again) == again
    assert write_check(path, SERVED, "fidelity", WHOLE) == WHOLE
    assert write_check(path, SERVED, "fidelity", REDUCED) == WHOLE
    looser = replace(SERVED, limits={"fidelity": 0.5})  # Nor by way of another limit.
    assert write_check(path, looser, "fidelity", replace(REDUCED, limit=0.5)) == WHOLE
    with pytest.raises(WeightsError, match="fidelity: of all"):
        require_checks(path, SERVED, "small")
    passed = replace(PASSED, generations=32)
    assert write_check(path, SERVED, "fidelity", passed) == passed
    others = replace(SERVED, weights_sha256="others")
    assert write_check(path, others, "fidelity", REDUCED) == REDUCED


def test_a_value_that_is_no_number_leaves_a_file_that_can_be_read(path: Path) -> None:
    write_check(path, SERVED, "fidelity", replace(FAILED, value=float("nan")))
    assert read_checks(path, SERVED)["fidelity"] == replace(FAILED, value=None)


def file_of(**changes: object) -> str:
    """A file of checks, of which one differs."""
    row = {"code_version": "1", "passed": True, "detail": "", "value": 0.0, "limit": 0.05}
    value = {
        "schema_version": 3,
        "weights_sha256": "weights",
        "settings_sha256": "settings",
        "checks": {"cpu": {"engine": {**row}, "fidelity": {**row, **changes}}},
    }
    return json.dumps(value)


def test_a_file_as_it_is_written_is_read(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(file_of())
    require_checks(path, SERVED, "small")


DAMAGED = [
    "{",
    "[]",
    '{"schema_version": 9, "checks": {}, "weights_sha256": ""}',
    '{"schema_version": 3, "checks": {}, "weights_sha256": ""}',
    '{"schema_version": 1e999}',
    '{"schema_version": "3"}',
    '{"schema_version": true}',
    file_of().replace('"weights"', "[" * 100_000),
    file_of(ok=1),
    file_of(passed="false"),
    file_of(passed=1),
    file_of(value=0.06),
    file_of(value=float("nan")),
    file_of(value=float("inf")),
    file_of(value=True),
    file_of(value="0"),
    file_of(value=None),
    file_of(limit="0.05"),
    file_of(limit=[]),
    file_of(detail=None),
    file_of(code_version=1),
    file_of(reduced="no"),
    file_of(generations=0),
    file_of(generations=1.5),
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_of_checks_is_named_and_mended_by_the_next_check(
    path: Path, text: str
) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(WeightsError, match=r"checks\.json: no file of checks .* again"):
        require_checks(path, SERVED, "small")
    pass_all(path)
    require_checks(path, SERVED, "small")


def write_together(path: Path, name: str, barrier: Barrier) -> None:
    barrier.wait()
    write_check(path, SERVED, name, PASSED)


def test_processes_that_write_at_once_lose_no_check(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        names = [f"check-{number}" for number in range(WRITERS)]
        barrier = context.Barrier(WRITERS)
        writers = [
            context.Process(target=write_together, args=(path, name, barrier)) for name in names
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
        assert sorted(read_checks(path, SERVED)) == names
        path.unlink()


def test_a_server_takes_a_reduced_check_and_says_so_but_no_edited_recipe(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = path.parents[2] / "presets.toml"
    recipe = 'checkpoint = { scheme = "w4a16", base = "." }'
    table.write_text(f'[presets.small]\nmodel = "store"\ncodec = "."\n{recipe}\n')
    monkeypatch.setenv("SPEECH_PRESETS", str(table))
    path.parent.mkdir(parents=True)
    (path.parent / "model.safetensors").write_bytes(b"weights")
    record = {"recipe": {"scheme": "w4a16", "base": ".", "group_size": 128}}
    (path.parent / "checkpoint.json").write_text(json.dumps(record))
    preset, store = load_preset("small"), str(path.parents[2])
    served = served_as(preset, weights_sha256(path.parent), "cpu")
    write_check(path, served, "engine", PASSED)
    write_check(path, served, "fidelity", REDUCED)
    found = loading._passed_checks(preset, path.parent, "cpu", store)
    assert found == {"engine": PASSED, "fidelity": REDUCED}
    assert caplog.messages == [
        "small: its check fidelity is of a reduced run (2 generations); a whole one may fail it"
    ]
    with pytest.raises(WeightsError, match="on cuda, only on cpu"):
        loading._passed_checks(preset, path.parent, "cuda", store)
    table.write_text(table.read_text().replace("w4a16", "fp8"))
    with pytest.raises(WeightsError, match=r"made as w4a16 .* preset small says fp8 from"):
        loading._passed_checks(load_preset("small"), path.parent, "cpu", store)


def test_the_record_and_the_checks_are_not_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = weights_sha256(tmp_path)
    for name in ("checkpoint.json", "checks.json", ".checks.json.7.part"):
        (tmp_path / name).write_text("half")
    assert weights_sha256(tmp_path) == before
    (tmp_path / "tokenizer.json").write_text("{}")
    assert weights_sha256(tmp_path) != before
