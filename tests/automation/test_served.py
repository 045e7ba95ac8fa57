"""Which presets a server would take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from automation.checkpoint_folder import check, make_checkpoint

from speech_assets.served import checked, not_served

STORED = "embedded-w4a16"
SHIPPED = "embedded-bf16"


def test_weights_that_ship_need_no_checks(tmp_path: Path) -> None:
    assert not_served(SHIPPED, str(tmp_path)) == ""
    assert not_served("embedded-upstream", str(tmp_path)) == ""


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "has no checkpoint yet; materialize" in not_served(STORED, str(tmp_path))


def test_a_checkpoint_without_checks_is_refused(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, STORED)
    assert "fidelity was not made of these weights" in not_served(STORED, str(tmp_path))


def test_a_checkpoint_whose_check_failed_is_refused_with_what_was_found(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, STORED)
    check(tmp_path, STORED, passed=False)
    assert "mean KL 0.3 nats is above 0.05" in not_served(STORED, str(tmp_path))


def test_a_checkpoint_that_passed_is_taken_until_it_is_made_anew(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, STORED)
    check(tmp_path, STORED)
    first = checked(STORED, str(tmp_path))
    assert first.refusal == not_served(STORED, str(tmp_path)) == ""
    make_checkpoint(tmp_path, STORED, b"others")
    assert "was not made of these weights" in not_served(STORED, str(tmp_path))
    check(tmp_path, STORED)
    assert checked(STORED, str(tmp_path)).fingerprint != first.fingerprint


def test_a_checkpoint_that_another_recipe_made_is_refused(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, STORED)
    check(tmp_path, STORED)
    record = tmp_path / "checkpoints" / STORED / "checkpoint.json"
    record.write_text(record.read_text().replace('"group_size": 128', '"group_size": 64'))
    assert "made as w4a16 in groups of 64" in not_served(STORED, str(tmp_path))


def test_a_preset_of_anothers_checkpoint_is_judged_by_those_weights(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "embedded-fp8")
    check(tmp_path, "embedded-fp8-kv")
    assert not_served("embedded-fp8-kv", str(tmp_path)) == ""
    make_checkpoint(tmp_path, "embedded-fp8", b"others")
    assert "was not made of these weights" in not_served("embedded-fp8-kv", str(tmp_path))


def test_an_unknown_preset_and_a_store_that_is_no_folder_are_refused(tmp_path: Path) -> None:
    assert "no preset 'none'" in not_served("none", str(tmp_path))
    assert "is not a folder" in not_served(STORED, "s3://bucket/prefix")


@pytest.mark.parametrize("damage", ["{", "[]", json.dumps({"schema_version": 3})])
def test_damaged_checks_are_a_refusal_and_no_crash(tmp_path: Path, damage: str) -> None:
    for preset in (SHIPPED, STORED):
        make_checkpoint(tmp_path, preset)
        (tmp_path / "checkpoints" / preset / "checks.json").write_text(damage)
        assert checked(preset, str(tmp_path)).refusal
