"""Arms as they are written: presets, settings of every kind, and what is wrong with them."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from resources.store import Store
from server.errors import ConfigurationError
from speech_assets.ab.arm import Arm, codec_change, comparison_name, parse_arm, shown_settings
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_preset_alone_is_served_as_it_is() -> None:
    arm = parse_arm(" embedded ")
    assert arm == Arm("embedded-bf16")
    assert arm.table() is None


def test_settings_keep_their_types_and_the_preset_its_name() -> None:
    arm = parse_arm(
        "embedded-bf16,codec_dtype=bfloat16, largest_hop=2,noise=false,temperature=null,"
        'vllm.kv_cache_dtype=fp8,vllm.additional_config={"a":1,"b":[2,3]}'
    )
    row = tomllib.loads(str(arm.table()))["presets"]["embedded-bf16"]
    assert row["codec_dtype"] == "bfloat16"
    assert row["largest_hop"] == 2
    assert row["noise"] is False
    assert row["vllm"] == {"kv_cache_dtype": "fp8", "additional_config": {"a": 1, "b": [2, 3]}}
    assert row["tick_frames"] == 8  # The preset's own.


def test_a_stored_preset_with_a_setting_is_still_that_preset() -> None:
    # Its checkpoint is found, and its checks are, by its name.
    row = tomllib.loads(str(parse_arm("embedded-w4a16,largest_hop=2").table()))
    assert row["presets"]["embedded-w4a16"]["model"] == "store:embedded-w4a16"


def test_folders_are_shown_without_the_machines_own(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    arm = parse_arm(f"embedded-bf16,codec={tmp_path / 'mine'}")
    assert arm.label == "embedded-bf16,codec=mine"
    assert comparison_name(Arm("embedded-bf16"), arm) == "embedded-bf16 vs embedded-bf16,codec=mine"


def test_a_long_name_is_still_a_name_of_a_file() -> None:
    arm = Arm("embedded-bf16", (("codec_dtype", "x" * 300),))
    assert len(comparison_name(arm, arm)) == 150


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must begin with a preset"),
        ("largest_hop=2", "must begin with a preset"),
        ("embedded-bf16,largest_hop", "must begin with a preset"),
        ("embedded-bf16,largest_hop=2,largest_hop=4", "largest_hop is given twice"),
        ("embedded-bf16,speed=2", "'speed' is no setting of a preset; there are"),
        ("embedded-bf16,name=other", "name is no setting"),
        ("embedded-bf16,largest_hop.a=2", "'largest_hop' is no table"),
        ("embedded-bf16,codec_dtype=int4", "presets.embedded-bf16.codec_dtype is 'int4'"),
        ("embedded-bf16,max_streams=0", "max_streams is 0; it must be 1 to 4096"),
        ("embedded-bf16,codec=no/such/folder", "no/such/folder"),
    ],
)
def test_what_cannot_be_served_is_said_before_a_server_starts(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_arm(text)
    assert says in str(raised.value)
    assert "/tmp" not in str(raised.value)


def test_an_unknown_preset_is_named_beside_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no preset 'bf61'; there are .*embedded-bf16"):
        parse_arm("bf61")


def test_a_codec_is_a_form_of_the_store_or_a_folder(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert codec_change("", store) == []
    with pytest.raises(ConfigError, match=r"materialize codec_checkpoints for bf16"):
        codec_change("bf16", store)
    (tmp_path / "codecs" / "bf16").mkdir(parents=True)
    assert codec_change("bf16", store) == [("codec", str(tmp_path / "codecs" / "bf16"))]
    assert codec_change(str(tmp_path), store) == [("codec", str(tmp_path))]


def test_settings_are_shown_without_folders_and_as_they_are() -> None:
    shown = shown_settings({"model": "/x/y/voice", "lead_ins": None, "vllm": {}, "noise": True})
    assert shown == {"model": "voice", "lead_ins": None, "vllm": {}, "noise": True}
