"""The table of presets and a user's own: what is chosen, and what an error says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from server.engine import fastest_cpu_dtype, find_device
from server.errors import ConfigurationError, WeightsError
from server.presets import Preset, config_sha256, load_preset, load_presets, overridden

ROW = '[presets.mine]\nmodel = "."\ncodec = "owner/codec@abc"\n'


def load(folder: Path, toml: str | bytes, name: str = "mine") -> Preset:
    """The preset that `toml`, as a user's file in `folder`, makes."""
    file = folder / "presets.toml"
    file.write_bytes(toml.encode() if isinstance(toml, str) else toml)
    return load_preset(name, {"SPEECH_PRESETS": str(file)})


def refusal(folder: Path, toml: str | bytes, name: str = "mine") -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, toml, name)
    return str(caught.value)


def test_every_preset_that_ships_loads_and_can_be_planned() -> None:
    presets = load_presets({})
    assert {"embedded-bf16", "bf16", "fp8", "w4a16"} <= set(presets)
    for preset in presets.values():
        assert preset.planner_config().form == preset.decode
        assert preset.engine_settings("cuda").dtype == preset.dtype
        assert preset.codec_location()
    assert len({config_sha256(preset.config()) for preset in presets.values()}) == len(presets)


def test_the_embedded_voice_ships_and_runs_in_what_the_cpu_is_fastest_at() -> None:
    preset = load_preset("embedded", {})
    assert preset.name == "embedded-bf16"
    for location, file in (
        (preset.model_location(), "layout.json"),
        (preset.codec_location(), "config.json"),
    ):
        assert location.folder is not None
        assert (location.folder / file).is_file()
    assert preset.engine_settings("cpu").dtype == fastest_cpu_dtype()
    assert preset.engine_settings("cuda").dtype == "bfloat16"
    assert preset.engine_settings("cpu").head == "audio"


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ("fpu avx2 avx512_bf16 amx_tile", "bfloat16"),
        ("fpu avx2 avx512f avx512_vnni", "float32"),
        (None, "float32"),
    ],
)
def test_a_cpu_says_what_it_is_fastest_at(tmp_path: Path, flags: str | None, dtype: str) -> None:
    info = tmp_path / "cpuinfo"
    if flags is not None:
        info.write_text(f"processor : 0\nflags\t\t: {flags}\nbugs\t\t: none\n")
    assert fastest_cpu_dtype(info) == dtype


def test_an_unknown_preset_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"no preset 'x'; there are embedded-bf16, emb"):
        load_preset("x", {})


def test_a_users_file_adds_rows_and_replaces_ours(tmp_path: Path) -> None:
    preset = load(tmp_path, ROW)
    assert preset.model_location().folder == tmp_path
    assert preset.codec_location().revision == "abc"
    assert preset.head == "audio"
    assert load(tmp_path, ROW, "bf16") == load_preset("bf16", {})
    assert load(tmp_path, ROW.replace("mine", "bf16"), "bf16").base == tmp_path


def test_every_switch_reaches_the_engine_or_the_planner(tmp_path: Path) -> None:
    preset = load(
        tmp_path,
        ROW
        + """
        dtype = "float16"
        head = "full"
        engine = "child"
        max_streams = 3
        max_model_len = 512
        kv_cache_mib = 64
        decoder = "per_stream"
        decode = "window"
        first_chunk_frames = 2
        largest_hop = 1
        longest_wait_ms = 5
        tick_frames = 4
        vllm = { quantization = "fp8" }
        """,
    )
    engine, planner = preset.engine_settings("cpu"), preset.planner_config()
    assert (engine.dtype, engine.head, engine.form) == ("float16", "full", "child")
    assert (engine.max_streams, engine.max_model_len, engine.kv_cache_mib) == (3, 512, 64)
    assert engine.vllm_args == {"quantization": "fp8"}
    assert (planner.batched, planner.form, planner.first_chunk_frames) == (False, "window", 2)
    assert (planner.largest_hop, planner.longest_wait_ms, planner.tick_frames) == (1, 5.0, 4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("colour = 3", r"presets\.mine\.colour is not a setting; the settings are aliases, check"),
        ('dtype = "int8"', r"presets\.mine\.dtype is 'int8': Input should be 'float32'"),
        ('max_streams = "8"', r"presets\.mine\.max_streams is '8'"),
        ("max_streams = 0", r"presets\.mine\.max_streams is 0; it must be 1 to 4096"),
        ("top_p = 0.0", r"presets\.mine\.top_p is 0\.0"),
        ("largest_hop = 3", r"presets\.mine: planner largest_hop 3: need 1, 2 or 4"),
        ("top_p = nan", r"presets\.mine: .*JSON compliant"),
        ("max_queue = 2020-01-01", r"presets\.mine: .*not JSON serializable"),
        ("name = 'other'", r"presets\.mine\.name is not a setting"),
        ("aliases = ['embedded']", "'embedded' is of presets embedded-bf16 and mine"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_row(
    tmp_path: Path, line: str, message: str
) -> None:
    text = refusal(tmp_path, ROW + line)
    assert re.search(message, text)
    assert str(tmp_path / "presets.toml") in text or "is of presets" in text


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[presets.mine]\nmodel = "."\n', "presets.mine.codec is missing"),
        ("[models.mine]\n", "unknown table [models]"),
        ("presets = 3\n", "no table [presets.NAME]"),
        ("[presets]\nmine = 3\n", "presets.mine is 3; it must be a table"),
        ("[presets.mine\n", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
    ],
)
def test_a_file_of_another_form_is_named(tmp_path: Path, toml: str | bytes, message: str) -> None:
    text = refusal(tmp_path, toml)
    assert message in text
    assert str(tmp_path / "presets.toml") in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"SPEECH_PRESETS=.*none\.toml: No such file"):
        load_presets({"SPEECH_PRESETS": str(tmp_path / "none.toml")})


def test_a_store_preset_is_looked_for_in_the_store(tmp_path: Path) -> None:
    preset = load_preset("w4a16", {})
    with pytest.raises(ConfigurationError, match="the store None is not a folder"):
        preset.model_location()
    with pytest.raises(ConfigurationError, match="s3://bucket"):
        preset.model_location("s3://bucket/prefix")
    with pytest.raises(WeightsError, match="preset w4a16 has no checkpoint yet"):
        preset.model_location(str(tmp_path))
    (tmp_path / "checkpoints" / "w4a16").mkdir(parents=True)
    folder = preset.model_location(str(tmp_path)).folder
    assert folder == tmp_path / "checkpoints" / "w4a16"


def test_a_command_line_overrides_and_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voice").mkdir()
    monkeypatch.chdir(tmp_path)
    preset = load_preset("embedded", {})
    given = overridden(preset, model="voice", codec="a/b@c", max_streams=2, device="cpu")
    assert given.model_location().folder == tmp_path / "voice"
    assert given.codec_location().repository == "a/b"
    assert (given.max_streams, given.max_queue, given.device) == (2, preset.max_queue, "cpu")
    assert overridden(preset) == preset
    with pytest.raises(ConfigurationError, match="max_streams is 0"):
        overridden(preset, max_streams=0)
    with pytest.raises(ConfigurationError, match="no such folder"):
        overridden(preset, model="nowhere").model_location()


def test_the_hash_follows_the_settings_alone(tmp_path: Path) -> None:
    preset = load(tmp_path, ROW)
    (tmp_path / "b").mkdir()
    same = load(tmp_path / "b", ROW + 'description = "words"\naliases = ["m"]\n')
    assert config_sha256(preset.config()) == config_sha256(same.config())
    assert json.loads(json.dumps(preset.config())) == preset.config()
    assert str(tmp_path) not in json.dumps(preset.config())
    other = overridden(preset, max_streams=5)
    assert config_sha256(preset.config()) != config_sha256(other.config())


def test_a_gpu_that_is_not_there_is_named() -> None:
    import torch

    if torch.cuda.is_available():
        assert find_device("auto") == find_device("cuda") == "cuda"
    else:
        assert find_device("auto") == "cpu"
        with pytest.raises(ConfigurationError, match="finds no GPU; use --device cpu"):
            find_device("cuda")
    assert find_device("cpu") == "cpu"
