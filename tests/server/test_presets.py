"""The table of presets and a user's own: what is chosen, and what an error says."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from server.checks import REQUIRED, Check, require_checks, write_check
from server.codec_form import origin_sha256
from server.engine import fastest_cpu_dtype, find_device
from server.errors import ConfigurationError, WeightsError
from server.lifecycle import EXIT_WEIGHTS
from server.loading import check_settings, load_model
from server.metrics import Metrics
from server.presets import (
    Preset,
    check_recipe,
    config_sha256,
    load_preset,
    load_presets,
    overridden,
    recipe_of,
    served_as,
    weights_owner,
)

ROW = '[presets.mine]\nmodel = "."\ncodec = "owner/codec@abc"\n'
CODEC = 'codec = "owner/codec@abc"\n'
FOUR = f'[presets.four]\nmodel = "store"\n{CODEC}checkpoint = {{ scheme = "w4a16", base = "." }}\n'
FOUR_KV = f'[presets.mine]\nmodel = "store:four"\n{CODEC}vllm = {{ kv_cache_dtype = "fp8" }}\n'
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "fidelity"
EMBEDDED = ROOT / "server" / "embedded" / "voice"


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


def test_an_unknown_preset_is_named_with_the_users_file_that_was_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no preset 'x'; .*; add rows with SPEECH_PRE"):
        load_preset("x", {})
    with pytest.raises(ConfigurationError, match=r"mine; SPEECH_PRESETS=.*\.toml was read, too"):
        load(tmp_path, ROW, "x")


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
        ("largest_hop = 3", r"presets\.mine\.largest_hop is 3; set it to 1, 2 or 4"),
        ("tick_frames = 0", r"mine\.tick_frames is 0; set it to 4 \(largest_hop\) or more"),
        ("top_p = nan", r"presets\.mine\.top_p is nan: .*JSON compliant"),
        ("max_queue = 2020-01-01", r"presets\.mine\.max_queue is datetime.*not JSON serializable"),
        (
            'checkpoint = { scheme = "bf16", max_mean_kl = 0.1 }',
            r"presets\.mine\.checkpoint\.max_mean_kl is not a setting; did you mean max_mean_kl",
        ),
        ("aliases = ['']", r"presets\.mine\.aliases has ''"),
        ("codec_placee = 'thread'", r"codec_placee is not a setting; did you mean codec_place"),
        (
            "seeded_frames = 1\nlead_ins = '~nobodyxx/l.json'",
            r"presets\.mine\.lead_ins is '~nobodyxx/l\.json': could not determine home directory",
        ),
        (
            'seeded_frames = 1\nlead_ins = "a\\u0000b"',
            r"presets\.mine\.lead_ins is 'a\\x00b' is no path: a NUL is in it",
        ),
        (
            'sampler = "fused"\nhead = "full"',
            r"presets\.mine\.sampler is 'fused', .* head is 'full'; set head = \"audio\" or",
        ),
        (
            'sampler = "fused"\ndevice = "cpu"',
            r"presets\.mine\.sampler is 'fused', which is a GPU's, .*; set sampler = \"auto\" or",
        ),
        ('sampler = "vllm"\ndevice = "cpu"', r"presets\.mine\.sampler is 'vllm', which is a GPU"),
        ("name = 'other'", r"presets\.mine\.name is not a setting"),
        ("aliases = ['embedded']", "'embedded' is of presets embedded-bf16 and mine"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_row(
    tmp_path: Path, line: str, message: str
) -> None:
    text = refusal(tmp_path, ROW + line)
    assert re.search(message, text)
    assert text.startswith(str(tmp_path / "presets.toml"))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[presets.mine]\nmodel = "."\n', "presets.mine.codec is missing"),
        ('[presets.mine]\nmodel = ""\ncodec = "."\n', "presets.mine.model is empty; give a"),
        ("[models.mine]\n", "unknown table [models]"),
        ("presets = 3\n", "no table [presets.NAME]"),
        ("[presets]\nmine = 3\n", "presets.mine is 3; it must be a table"),
        ("[presets.mine\n", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        ("a = " + "[" * 100_000, "is not TOML"),
        ("a = " + "1" * 5_000, "is not TOML"),
    ],
)
def test_a_file_of_another_form_is_named(tmp_path: Path, toml: str | bytes, message: str) -> None:
    text = refusal(tmp_path, toml)
    assert message in text
    assert str(tmp_path / "presets.toml") in text


LONG = 5_000 * "x"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (f"{ROW}{LONG} = 3", "is not a setting; the settings are"),
        (f'{ROW}dtype = "{LONG}"', "presets.mine.dtype is 'xxx"),
        (f"{ROW}max_streams = 0x{5_000 * 'f'}", "max_streams is a number of thousands of digits"),
        (f"{ROW}max_streams = {4_000 * '9'}", "it must be 1 to 4096"),
        (f"{ROW}tick_frames = -{4_000 * '9'}", "set it to 4 (largest_hop) or more"),
        (f"{ROW}aliases = [' {LONG}']", "presets.mine.aliases has ' xxx"),
        (f"{ROW}aliases = ['{LONG}', '{LONG}']", "xxx' is of presets mine and mine; rename one"),
        (f"{ROW}untrained = true\nlead_ins = '{LONG}'", "presets.mine.lead_ins is 'xxx"),
        (f"{ROW}seeded_frames = 1\nlead_ins = '{LONG}'", "or a name in it than 255; shorten it"),
        (f"{ROW}seeded_frames = 1\nlead_ins = '{LONG.replace('xx', 'x/')}'", "than 4,095 bytes"),
        (f'[presets.mine]\nmodel = "store:{LONG}"\n{CODEC}', "xxx' is no preset whose model"),
        (f"[presets]\nmine = '{LONG}'\n", "presets.mine is 'xxx"),
        (f"[presets.{LONG}]\n", "xxx'] is no name of a preset"),
        (f"[{LONG}]\n", "xxx]; rows are [presets.NAME]"),
        ('["a\\nb"]\n', "unknown table [a\\nb]; rows are"),
        (f"[{LONG}]\n[{LONG}]\n", "is not TOML: Cannot declare ('xxx"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_long_key_or_value_is_one_short_line(
    tmp_path: Path, toml: str, message: str
) -> None:
    text = refusal(tmp_path, toml)
    assert message in text
    assert len(text.splitlines()) == 1
    assert len(text) < 1_000 + len(str(tmp_path))


def test_an_unknown_name_of_any_length_and_long_aliases_are_told_in_short(tmp_path: Path) -> None:
    text = refusal(tmp_path, f"{ROW}aliases = ['{LONG}']", f"{LONG}y")
    assert "no preset 'xxx" in text
    assert len(text) < 2_000 + len(str(tmp_path))


def test_a_folder_of_a_name_that_no_system_takes_is_refused(tmp_path: Path) -> None:
    preset = load(tmp_path, ROW.replace('"."', f'"{LONG}"'))
    with pytest.raises(ConfigurationError, match=r"is no path: .* a name in it than 255; shorten"):
        preset.model_location()
    with pytest.raises(ConfigurationError, match="is no path"):
        load_presets({"SPEECH_PRESETS": LONG})


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


def test_who_owns_the_weights_and_what_they_may_stray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 'checkpoint = { scheme = "w4a16", max_mean_kl_nats = 0.2 }\n'
    (tmp_path / "presets.toml").write_text(
        FOUR + FOUR_KV + FOUR_KV.replace("mine", "loose") + limit
    )
    monkeypatch.setenv("SPEECH_PRESETS", str(tmp_path / "presets.toml"))
    four, mine, loose = (load_preset(name) for name in ("four", "mine", "loose"))
    assert [weights_owner(preset).name for preset in (four, mine, loose)] == ["four"] * 3
    assert weights_owner(load_preset("embedded")).name == "embedded-bf16"
    assert recipe_of(mine) == recipe_of(four) == four.checkpoint
    assert [recipe_of(preset).limit_nats for preset in (four, mine, loose)] == [0.05, 0.05, 0.2]
    with pytest.raises(ConfigurationError, match="embedded-upstream has no checkpoint table"):
        recipe_of(load_preset("embedded-upstream"))


STORED = f'[presets.mine]\nmodel = "store:four"\n{CODEC}checkpoint = '


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (STORED + '{ scheme = "fp8" }', "checkpoint.scheme is 'fp8', .* four, where it is 'w4a16'"),
        (STORED + '{ scheme = "w4a16", group_size = 64 }', "group_size is 64, .* it is 128; say"),
        (STORED + '{ scheme = "w4a16", base = "b" }', r"checkpoint\.base is '.*/b', .*where it is"),
        (STORED + '{ scheme = "w4a16", base = "a/b@c" }', "checkpoint.base is 'a/b@c', "),
        (ROW.replace('"."', '"store:nobody"'), "'nobody' is no preset whose model is 'store'"),
        (ROW.replace('"."', '"store:embedded"'), "'embedded' is no preset whose .*, four"),
        (ROW.replace('"."', '"store:bf16"'), "'bf16' is no preset whose model is 'store'"),
        (FOUR_KV + FOUR_KV.replace("mine", "on").replace(":four", ":mine"), "'mine' is no preset"),
        (
            f'[presets.bare]\nmodel = "store"\n{CODEC}' + STORED.replace("four", "bare")
            + '{ scheme = "fp8" }',
            "weights are those of preset bare, which has no checkpoint table",
        ),
    ],
)  # fmt: skip
def test_a_row_of_anothers_checkpoint_that_cannot_be_true_is_refused(
    tmp_path: Path, row: str, message: str
) -> None:
    name = row.rpartition("[presets.")[2].partition("]")[0]
    assert re.search(message, refusal(tmp_path, FOUR + row, name))
    other = ROW.replace("mine", "sound")  # Such a row stops no other of its file.
    assert load(tmp_path, FOUR + row + "\n" + other, "sound").name == "sound"
    assert name in load_presets({"SPEECH_PRESETS": str(tmp_path / "presets.toml")})


@pytest.mark.parametrize(
    "name",
    ["", " ", "../x", "a/b", ".x.lock", ".", "..", "a\\u0000b", "a\\n", "-x", "a" * 101, "é"],
)
def test_a_name_that_is_no_folders_is_refused(tmp_path: Path, name: str) -> None:
    text = refusal(tmp_path, ROW.replace("mine", f'"{name}"'), "embedded")
    assert "is no name of a preset; it becomes a folder's, so give 1 to 100 letters" in text
    assert len(text.splitlines()) == 1


def test_a_preset_of_a_bad_name_has_no_folder_in_the_store(tmp_path: Path) -> None:
    preset = dataclasses.replace(load_preset("w4a16", {}), name="")
    for model, call in (("store", preset.checks_path), ("store:../x", preset.model_location)):
        object.__setattr__(preset, "model", model)
        with pytest.raises(ConfigurationError, match="names a folder of the store; give 1 to"):
            call(str(tmp_path))


MADE = {"scheme": "w4a16", "base": ".", "group_size": 128}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"scheme": "fp8"}, r"made as fp8 from \., and preset four says w4a16 in groups of 128"),
        ({"group_size": 64}, "made as w4a16 in groups of 64 from "),
        ({"base": "other"}, "made as w4a16 in groups of 128 from other, and"),
        ({"scheme": None}, "no record of a checkpoint"),
    ],
)
def test_a_recipe_that_was_edited_after_its_checkpoint_was_made_is_found(
    tmp_path: Path, made: dict[str, object], words: str
) -> None:
    environment = {"SPEECH_PRESETS": str(tmp_path / "presets.toml")}
    (tmp_path / "presets.toml").write_text(FOUR + FOUR_KV + ROW.replace("mine", "plain"))
    four, kv, plain = (load_preset(name, environment) for name in ("four", "mine", "plain"))
    record = tmp_path / "checkpoint.json"
    check_recipe(plain, tmp_path, environment)
    with pytest.raises(WeightsError, match=r"no such file; the checkpoint was never finished; mat"):
        check_recipe(four, tmp_path, environment)
    record.write_text(json.dumps({"recipe": MADE}))
    check_recipe(four, tmp_path, environment)
    check_recipe(kv, tmp_path, environment)
    record.write_text(json.dumps({"recipe": {**MADE, **made}}))
    for preset in (four, kv):
        with pytest.raises(WeightsError, match=words) as caught:
            check_recipe(preset, tmp_path, environment)
        assert str(caught.value).endswith("materialize checkpoints for four again")
    for text in ("[]", "{}", '{"recipe": []}', '{"recipe": {"scheme": 1}}'):
        record.write_text(text)
        with pytest.raises(WeightsError, match=r"checkpoint\.json: .*materialize checkpoints"):
            check_recipe(four, tmp_path, environment)


@pytest.mark.parametrize("base", ["", ', base = "."', ', base = "../{name}"'])
def test_a_row_of_anothers_checkpoint_may_say_the_same(tmp_path: Path, base: str) -> None:
    row = STORED + f'{{ scheme = "w4a16"{base.format(name=tmp_path.name)} }}'
    assert load(tmp_path, FOUR + row).stored_as == "four"


def test_a_users_row_in_place_of_ours_leaves_the_rest_usable(tmp_path: Path) -> None:
    ours = FOUR.replace("presets.four", "presets.embedded-fp8")
    assert load(tmp_path, ours + ROW).name == "mine"
    says = refusal(tmp_path, ours, "embedded-fp8-kv")
    assert "presets.embedded-fp8-kv.checkpoint.scheme is 'fp8'" in says


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ('dtype = "float16"', True),
        ('cpu_dtype = "float32"', True),
        ('head = "full"', True),
        ('engine = "child"', True),
        ('vllm = { kv_cache_dtype = "fp8" }', True),
        ("max_streams = 3", False),
        ('description = "words"', False),
    ],
)
def test_checks_are_of_the_settings_that_change_what_is_computed(
    tmp_path: Path, line: str, counts: bool
) -> None:
    row = ROW + 'checkpoint = { scheme = "bf16" }\n'
    before, after = (served_as(load(tmp_path, row + more), "w", "cpu") for more in ("", line))
    assert (before.settings_sha256 != after.settings_sha256) == counts
    assert before.limits == after.limits == {"fidelity": 0.001}
    assert before.weights_sha256 == "w"


def test_a_changed_row_loses_its_checks(tmp_path: Path) -> None:
    row = ROW + 'checkpoint = { scheme = "bf16" }\n'
    path = tmp_path / "checkpoints" / "mine" / "checks.json"
    for name in REQUIRED:
        limit = 0.001 if name == "fidelity" else 0.01
        write_check(
            path, served_as(load(tmp_path, row), "w", "cpu"), name, Check(True, "", 0.0, limit)
        )
    require_checks(path, served_as(load(tmp_path, row + "max_streams = 2\n"), "w", "cpu"), "mine")
    with pytest.raises(WeightsError, match=r"engine was not made of .*; fidelity was not"):
        require_checks(path, served_as(load(tmp_path, row + 'head = "full"\n'), "w", "cpu"), "mine")
    strict = row.replace('"bf16"', '"bf16", max_mean_kl_nats = 0.0001')
    with pytest.raises(WeightsError, match=r"\(fidelity was not made of these"):
        require_checks(path, served_as(load(tmp_path, strict), "w", "cpu"), "mine")


def test_every_limit_of_the_embedded_voice_was_published_with_what_was_measured() -> None:
    published: dict[str, float] = {}
    for path in sorted(RESULTS.glob("*/*/*.json")):
        result = json.loads(path.read_text("utf-8"))
        published[result["name"]] = result["config"]["limit_nats"]
    presets = [p for p in load_presets({}).values() if p.device == "auto" and p.checkpoint]
    limits = {preset.name: recipe_of(preset, {}).limit_nats for preset in presets}
    del limits["embedded-fp8-weight-only"]  # vLLM has no kernel for it on a CPU.
    assert {name: published.get(name) for name in limits} == limits


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


def test_a_sampler_that_no_device_was_named_for_is_refused_on_the_cpu_alone(
    tmp_path: Path,
) -> None:
    preset = load(tmp_path, ROW + 'sampler = "fused"\n')
    assert preset.engine_settings("cuda").sampler == "fused"
    with pytest.raises(ConfigurationError, match=r"presets\.mine\.sampler is 'fused', which is"):
        preset.engine_settings("cpu")
    with pytest.raises(ConfigurationError, match=r"preset mine\.sampler is 'fused', which is"):
        overridden(preset, device="cpu")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("foo = 1", "vllm.foo is no argument of the installed vLLM's EngineArgs; leave it out"),
        ("kv_cache_dtypes = 1", "EngineArgs; write kv_cache_dtype, or leave it out"),
        ("enable_log_requests = true", "vllm.enable_log_requests is no argument"),  # A child's.
    ],
)
def test_an_argument_that_vllm_has_not_is_named_before_anything_loads(
    tmp_path: Path, line: str, fault: str
) -> None:
    preset = load(tmp_path, f'{ROW}device = "cpu"\nvllm = {{ {line} }}\n')
    with pytest.raises(ConfigurationError) as caught:
        load_model(preset, Metrics())  # Its folder, which has no checkpoint, would be next.
    assert str(caught.value).startswith("presets.mine.vllm.")
    assert fault in str(caught.value)


def test_the_arguments_of_vllm_are_known_without_its_import() -> None:
    script = (
        "import sys\n"
        "from server.engine_arguments import argument_names\n"
        "assert 'kv_cache_dtype' in argument_names('in_process')\n"
        "assert not {'vllm', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


SEEDED = """[presets.mine]
model = "{voice}"
codec = "{codec}"
device = "cpu"
lead_ins = "l.json"
seeded_frames = 1
"""


@pytest.mark.parametrize(
    ("voices", "codec_sha256", "words"),
    [
        (None, None, "l.json: no such file; preset settings name it; make it again"),
        ({"heart": [[[0] * 7]]}, "of another", "of the codec with sha256 of another, and the"),
        ({"tara": [[[0] * 7]]}, None, "no lead-in of voice 'heart'"),
    ],
)
def test_lead_ins_that_cannot_serve_are_refused_with_one_line_where_the_preset_is_only_shown(
    tmp_path: Path, voices: dict[str, object] | None, codec_sha256: str | None, words: str
) -> None:
    embedded = load_preset("embedded", {})
    voice, codec = embedded.model_location().folder, embedded.codec_location().folder
    assert codec is not None
    preset = load(tmp_path, SEEDED.format(voice=voice, codec=codec))
    if voices is not None:
        made_by = {"codec_sha256": codec_sha256 or origin_sha256(codec)}
        value = {"schema_version": 2, "voices": voices, "made_by": made_by}
        (tmp_path / "l.json").write_text(json.dumps(value))
    with pytest.raises(WeightsError, match=re.escape(words)) as shown:
        check_settings(preset)
    with pytest.raises(WeightsError) as served:
        load_model(preset, Metrics())
    assert str(shown.value) == str(served.value)


def test_lead_ins_for_what_is_on_the_hub_are_read_without_fetching_it(tmp_path: Path) -> None:
    preset = load(tmp_path, SEEDED.format(voice="owner/voice@abc", codec="owner/codec@abc"))
    value = {"schema_version": 2, "voices": {}, "made_by": {"codec_sha256": "of any"}}
    (tmp_path / "l.json").write_text(json.dumps(value))
    check_settings(preset)
    (tmp_path / "l.json").write_text("[]")
    with pytest.raises(WeightsError, match=r"l\.json: not readable as JSON"):
        check_settings(preset)


def test_a_preset_that_cannot_serve_is_not_shown_but_refused(tmp_path: Path) -> None:
    (tmp_path / "presets.toml").write_text(SEEDED.format(voice=".", codec="a/b@c"))
    (tmp_path / "layout.json").write_bytes((EMBEDDED / "layout.json").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "server", "--print-config", "--preset", "mine"],
        cwd=ROOT,
        env={**os.environ, "SPEECH_PRESETS": str(tmp_path / "presets.toml")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (EXIT_WEIGHTS, "")
    assert f"{tmp_path / 'l.json'}: no such file; preset settings name it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_gpu_that_is_not_there_is_named() -> None:
    import torch

    if torch.cuda.is_available():
        assert find_device("auto") == find_device("cuda") == "cuda"
    else:
        assert find_device("auto") == "cpu"
        with pytest.raises(ConfigurationError, match="finds no GPU; choose the CPU"):
            find_device("cuda")
    assert find_device("cpu") == "cpu"
