"""Checks of a checkpoint: of these very weights, all passed, or the preset is not served."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from server.checks import REQUIRED, Check, read_checks, require_checks, weights_sha256, write_check
from server.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

PASSED = Check(passed=True, detail="as it must be")
FAILED = Check(passed=False, detail="mean KL 0.3 nats", value=0.3, limit=0.05)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def pass_all(path: Path, weights: Path) -> None:
    for name in REQUIRED:
        write_check(path, weights, name, PASSED)


def test_weights_whose_checks_all_passed_are_served(weights: Path) -> None:
    pass_all(weights / "checks.json", weights)
    require_checks(weights / "checks.json", weights, "small")
    assert read_checks(weights / "checks.json", weights) == dict.fromkeys(REQUIRED, PASSED)


def test_a_check_that_was_never_made_is_named(weights: Path) -> None:
    with pytest.raises(WeightsError, match="engine was not made of these weights; fidelity was"):
        require_checks(weights / "checks.json", weights, "small")
    write_check(weights / "checks.json", weights, "engine", PASSED)
    with pytest.raises(WeightsError, match=r"\(fidelity was not made.*--allow-unchecked"):
        require_checks(weights / "checks.json", weights, "small")


def test_a_check_that_failed_is_named_with_what_was_found(weights: Path) -> None:
    pass_all(weights / "checks.json", weights)
    write_check(weights / "checks.json", weights, "fidelity", FAILED)
    with pytest.raises(WeightsError, match=r"preset small .*fidelity: mean KL 0\.3 nats"):
        require_checks(weights / "checks.json", weights, "small")


def test_checks_of_other_weights_count_for_nothing(weights: Path) -> None:
    path = weights / "checks.json"
    pass_all(path, weights)
    (weights / "model.safetensors").write_bytes(b"WEIGHTS")
    assert read_checks(path, weights) == {}
    with pytest.raises(WeightsError, match="was not made of these weights"):
        require_checks(path, weights, "small")
    write_check(path, weights, "engine", PASSED)
    assert list(read_checks(path, weights)) == ["engine"]


def test_a_presets_checks_may_be_of_another_presets_weights(tmp_path: Path, weights: Path) -> None:
    path = tmp_path / "checkpoints" / "small-fp8-kv" / "checks.json"
    pass_all(path, weights)
    require_checks(path, weights, "small-fp8-kv")
    assert read_checks(weights / "checks.json", weights) == {}


def test_the_record_and_the_checks_are_not_weights(weights: Path) -> None:
    before = weights_sha256(weights)
    pass_all(weights / "checks.json", weights)
    (weights / "checkpoint.json").write_text("{}")
    (weights / ".checks.json.part").write_text("half")
    assert weights_sha256(weights) == before
    (weights / "tokenizer.json").write_text("{}")
    assert weights_sha256(weights) != before


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema_version": 9, "checks": {}, "weights_sha256": ""}',
        json.dumps({"schema_version": 1, "weights_sha256": "", "checks": {"engine": {"ok": 1}}}),
    ],
)
def test_a_damaged_file_of_checks_is_named(weights: Path, text: str) -> None:
    (weights / "checks.json").write_text(text)
    with pytest.raises(WeightsError, match=r"checks\.json: no file of checks .* again"):
        require_checks(weights / "checks.json", weights, "small")
