"""Checks of a checkpoint: of these very weights and settings, all passed, or it is not served."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from server import checks
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

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

PASSED = Check(passed=True, detail="as it must be", value=0.01, limit=0.05)
FAILED = Check(passed=False, detail="mean KL 0.3 nats", value=0.3, limit=0.05)
SERVED = Served("weights", "settings", {"fidelity": 0.05})
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
    with pytest.raises(WeightsError, match=r"preset small .*fidelity: mean KL 0\.3 nats"):
        require_checks(path, SERVED, "small")


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


DAMAGED = [
    "{",
    "[]",
    '{"schema_version": 9, "checks": {}, "weights_sha256": ""}',
    '{"schema_version": 2, "checks": {}, "weights_sha256": ""}',
    json.dumps(
        {
            "schema_version": 2,
            "weights_sha256": "",
            "settings_sha256": "",
            "checks": {"engine": {"code_version": "1", "ok": 1}},
        }
    ),
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


def test_the_record_and_the_checks_are_not_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = weights_sha256(tmp_path)
    for name in ("checkpoint.json", "checks.json", ".checks.json.7.part"):
        (tmp_path / name).write_text("half")
    assert weights_sha256(tmp_path) == before
    (tmp_path / "tokenizer.json").write_text("{}")
    assert weights_sha256(tmp_path) != before
