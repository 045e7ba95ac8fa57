"""The file of assumptions: each value with label and source, and what is wrong named in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from speech_assets.errors import ConfigError
from speech_assets.scaling.assumptions_file import TABLE, load_assumptions
from speech_assets.scaling.assumptions_table import assumptions_table

if TYPE_CHECKING:
    from pathlib import Path

TEXT = TABLE.read_text(encoding="utf-8")


def test_every_assumption_is_shown_with_label_source_and_date() -> None:
    lines = assumptions_table(load_assumptions()).splitlines()[2:]
    assert len(lines) == TEXT.count("[values.") + sum(
        TEXT.count(f"[[{name}]]") for name in ("prices", "devices", "models")
    )
    for line in lines:
        _, _, _, label, source, date, _ = line.split("|")
        assert label.strip() in ("input", "assumption", "data sheet", "published by others")
        assert source.strip()
        assert date.strip().startswith("20")
    assert all("| input |" in line for line in lines if line.startswith("| price"))


def test_a_price_is_of_the_device_of_that_name_alone() -> None:
    assumptions = load_assumptions()
    assert assumptions.price_of("NVIDIA L4").device == "L4"
    assert assumptions.price_of("NVIDIA L40S").device == "L40S"
    assert assumptions.price_of("NVIDIA H100 80GB HBM3").device == "H100"
    assert assumptions.price_of("NVIDIA L4000") is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value = 0.4\n", "value = 1.4\n", r"values\.mfu is .*: its value must be a share"),
        ("value = 0.4\n", "value = -1\n", r"values\.mfu\.value is -1: .*greater than 0"),
        ("value = 0.4\n", 'value = "x"\n', r"values\.mfu\.value is 'x': .*valid number"),
        ("value = 0.4\n", "", r"values\.mfu\.value is missing"),
        ("value = 0.4\n", "value = inf\n", "cannot be read: Out of range"),
        ("value = 64\n", "value = 64.5\n", r"values\.gpus is .*whole number"),
        ("value = 64\n", "value = 60\n", "60 GPUs are no whole nodes of 8"),
        ("[values.mfu]", "[values.mfv]", r"values\.mfu is missing|values\.mfv is not a setting"),
        ('label = "assumption"', 'label = "fact"', r"label is 'fact'"),
        ('date = "2026-11-30"', 'date = "soon"', "date is 'soon': it must be a day"),
        ('date = "2026-11-30"', "date = 2026-11-30", "cannot be read"),
        ("hidden = 512\n", "", "it has no hidden, and no shape"),
        ("query_heads = 8\n", "query_heads = 12\n", "tensor_degree 8 does not divide the 12 heads"),
        ('shape = "orpheus-3b"', 'shape = "moth"', "there is no shape 'moth'"),
        ('training_device = "H100"', 'training_device = "X1"', "there is no device 'X1'"),
        ("tokens_per_s = 36.5", "tokens = 36.5", "speeds_by_others.0.tokens"),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = tmp_path / "mine.toml"
    assert old in TEXT
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as found:
        load_assumptions(file)
    assert str(found.value).startswith(str(file))
    assert "\n" not in str(found.value)


def test_a_file_that_is_not_there_or_is_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a TOML file of assumptions"):
        load_assumptions(tmp_path / "none.toml")
    file = tmp_path / "mine.toml"
    file.write_text("= 1")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_assumptions(file)
