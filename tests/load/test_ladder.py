"""The ladder's table and rule: what is adopted, worked out by hand, and what no table may say."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from server.presets import load_preset, load_presets
from speech_assets.errors import ConfigError
from speech_assets.load.ladder import (
    Ladder,
    Measured,
    Step,
    changed,
    outcome_of,
    superseded,
)
from speech_assets.load.ladder_file import load_ladder
from speech_assets.load.tables import ladder_table
from speech_assets.work.ladder import _check_values

HEAD = '[ladders.mine]\npreset = "embedded-bf16"\n'
STEP = '[[ladders.mine.steps]]\nname = "a"\nswitch = "largest_hop"\nvalue = 1\n'


def load(folder: Path, toml: str) -> Ladder:
    (folder / "ladder.toml").write_text(toml)
    return load_ladder("mine", folder / "ladder.toml")


@pytest.mark.parametrize(
    ("step", "followed", "outcome", "words"),
    [
        # More streams are adopted whatever the latency, fewer rejected.
        ((4, 300, 500, 0.9), (2, 100, 400, 0.5), "adopted", "4 against 2 streams in realtime"),
        ((1, 50, 300, 0.2), (2, 100, 400, 0.5), "rejected", "1 against 2 streams in realtime"),
        # As many: a gain beyond 5 %, and no loss beyond it.
        ((2, 94, 400, 0.5), (2, 100, 400, 0.5), "adopted", "TTFA 94 ms against 100 (-6%)"),
        ((2, 96, 400, 0.5), (2, 100, 400, 0.5), "rejected", "no gain beyond noise"),
        ((2, 100, 400, 0.4), (2, 100, 400, 0.5), "adopted", "RTF 0.4 against 0.5 (-20%)"),
        ((2, 104, 400, 0.4), (2, 100, 400, 0.5), "adopted", "TTFA 104 ms against 100 (+4%)"),
        ((2, 50, 400, 0.6), (2, 100, 400, 0.5), "rejected", "a gain and a loss"),
        ((2, 200, 400, 0.5), (2, 100, 400, 0.5), "rejected", "a loss"),
        # Silence that is sent sooner is no gain where speech comes later.
        ((2, 50, 500, 0.5), (2, 100, 400, 0.5), "rejected", "TTFS 500 ms against 400 (+25%)"),
        ((2, 100, 300, 0.5), (2, 100, 400, 0.5), "adopted", "TTFS 300 ms against 400 (-25%)"),
        # A figure that is missing decides nothing.
        ((0, None, None, None), (0, 100, 400, 0.5), "rejected", "no gain beyond noise"),
        ((0, 80, None, None), (0, 100, 400, 0.5), "adopted", "(-20%)"),
    ],
)
def test_the_rule(step: tuple, followed: tuple, outcome: str, words: str) -> None:
    decided, why = outcome_of(Measured(*step), Measured(*followed))
    assert decided == outcome
    assert words in why


def test_an_adopted_step_is_superseded_by_a_later_one_of_its_switch() -> None:
    steps = [
        Step("three", "first_chunk_frames", 3),
        Step("head", "head", "audio"),
        Step("two", "first_chunk_frames", 2),
        Step("one", "first_chunk_frames", 1),
    ]
    outcomes = dict(three="adopted", head="adopted", two="adopted", one="rejected")  # pyright: ignore[reportArgumentType]
    settings = {
        "three": {"first_chunk_frames": 3},
        "head": {"first_chunk_frames": 3, "head": "audio"},
        "two": {"first_chunk_frames": 2, "head": "audio"},
        "one": {"first_chunk_frames": 1, "head": "audio"},
    }
    assert superseded(steps, outcomes, settings) == {"three": "two"}  # pyright: ignore[reportArgumentType]


def test_an_adopted_step_is_superseded_by_one_that_follows_another_without_it() -> None:
    steps = [Step("hops", "largest_hop", 4), Step("head", "head", "audio", follows="baseline")]
    outcomes = dict(hops="adopted", head="adopted")  # pyright: ignore[reportArgumentType]
    settings = {"hops": {"largest_hop": 4}, "head": {"head": "audio"}}
    assert superseded(steps, outcomes, settings) == {"hops": "head"}  # pyright: ignore[reportArgumentType]


def test_the_ladder_that_ships_can_be_climbed() -> None:
    ladder = load_ladder("embedded")
    preset = load_preset(ladder.preset, {})
    assert len({step.switch for step in ladder.steps}) >= 6
    assert ladder.settings["decoder"] == "per_stream"
    assert ladder.settings["first_chunk_frames"] == 4
    for step in ladder.steps:
        assert step.value != ladder.settings.get(step.switch)
    _check_values(preset, ladder)


def test_a_changed_preset_is_the_servers_with_one_setting_changed(tmp_path: Path) -> None:
    preset = load_preset("embedded-bf16", {})
    file = tmp_path / "presets.toml"
    file.write_text(changed(preset, "step-1", {"largest_hop": 1, "vllm": {"seed": 3, "a": [True]}}))
    read = load_presets({"SPEECH_PRESETS": str(file)})["step-1"]
    settings = {**preset.config(), "name": "step-1", "largest_hop": 1}
    settings |= {"vllm": {"seed": 3, "a": [True]}}
    for place in ("model", "codec"):
        settings[place] = str((preset.base / settings[place]).resolve())
    assert read.config() == settings
    with pytest.raises(ConfigError, match="'speed' is no setting of a preset; there are codec,"):
        changed(preset, "step-1", {"speed": 2})


def test_a_users_table_is_read(tmp_path: Path) -> None:
    more = '[[ladders.mine.steps]]\nname = "b"\nswitch = "head"\nvalue = "full"\nfollows = "a"\n'
    ladder = load(tmp_path, HEAD + "levels = [1, 3]\nduration_s = 7\n" + STEP + more)
    assert ladder.levels == (1.0, 3.0)
    assert (ladder.duration_s, ladder.warmup_s) == (7.0, 5.0)
    assert ladder.steps == (
        Step("a", "largest_hop", 1),
        Step("b", "head", "full", follows="a"),
    )


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("", r"there is no \[ladders.mine\]; there are: none"),
        ("[ladders.other]\n", "there are: other"),
        ("[ladders", "is not TOML"),
        ("[ladders.mine]\n" + STEP, r"ladders\.mine\.preset is missing"),
        (HEAD, "steps is missing"),
        (HEAD + "speed = 1\n" + STEP, "ladders.mine.speed is not a setting"),
        (HEAD + 'name = "other"\n' + STEP, "ladders.mine.name is not a setting"),
        (HEAD + "levels = [0]\n" + STEP, "0 is no level"),
        (HEAD + "levels = []\n" + STEP, "there is no level"),
        (HEAD + "levels = 2\n" + STEP, "levels is 2: Input should be a valid array"),
        (HEAD + "duration_s = 0\n" + STEP, "duration_s is 0; it must be 1 to 86400"),
        (HEAD + "settings = { speed = 1 }\n" + STEP, "'speed' is no switch of a preset"),
        (HEAD + STEP.replace("largest_hop", "warp"), r"step 1 \(a\): 'warp' is no switch"),
        (HEAD + STEP.replace("value = 1\n", ""), r"step 1 \(a\): value is missing"),
        (HEAD + STEP.replace("value", "vlaue"), r"step 1 \(a\): vlaue is not a setting"),
        (HEAD + STEP.replace("= 1\n", "= 2024-01-01\n"), r"step 1 \(a\): value is 2024-01-01"),
        (HEAD + STEP.replace("= 1\n", "= [1, nan]\n"), r"step 1 \(a\): value\.1 is nan"),
        (HEAD + "settings = { vllm = { a = 07:30:00 } }\n" + STEP, r"vllm\.a is 07:30:00"),
        (HEAD + "duration_s = inf\n" + STEP, r"toml: ladders\.mine\.duration_s is inf"),
        (HEAD + "warmup_s = nan\n" + STEP, r"toml: ladders\.mine\.warmup_s is nan"),
        (HEAD + "warmup_s = 90000\n" + STEP, "warmup_s is 90000; it must be 0 to 86400"),
        (HEAD + 'warmup_s = "5"\n' + STEP, "warmup_s is '5': Input should be a valid number"),
        (HEAD + "note = 1\n" + STEP, "ladders.mine.note is 1"),
        (HEAD + "steps = [1]\n", "steps, step 1 is 1"),
        (HEAD + f"levels = {list(range(1, 5000))}\n" + STEP, "4097 is no level"),
        (HEAD + f"levels = '{'1,' * 5000}'\n" + STEP, "levels is '1,1,"),
        (HEAD + "levels = " + "[" * 5000, "is not TOML"),
        (HEAD + STEP.replace("= 1\n", f"= {'9' * 5000}\n"), "is not TOML"),
        (HEAD + STEP.replace('"a"', '"a\\nb"'), "give each step a name, on one line"),
        (HEAD + STEP.replace('name = "a"', 'name = ""'), "give each step a name"),
        (HEAD + STEP + STEP, r"step 2 \(a\): another step has this name"),
        (HEAD + STEP + 'follows = "z"\n', "follows is 'z'; name a step before it: baseline"),
        (HEAD + STEP + 'needs = "tpu"\n', r"step 1 \(a\): needs is 'tpu': .*'cpu' or 'cuda'"),
        (HEAD + STEP + "worth = 1\n", "worth is not a setting"),
    ],
)
def test_a_table_that_cannot_be_climbed_is_refused_in_one_line(
    tmp_path: Path, toml: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load(tmp_path, toml)
    assert len(str(caught.value)) < 1_000  # Not the 5,000 characters of a bad value.
    if "TOML" not in says:
        assert "\n" not in str(caught.value)


def test_a_name_that_is_no_folders_is_refused(tmp_path: Path) -> None:
    for name in ("../up", "a\nb", "", "--"):
        with pytest.raises(ConfigError, match="its name must be text on one line"):
            load_ladder(name, tmp_path / "absent.toml")


def test_a_value_of_any_letters_reaches_the_preset(tmp_path: Path) -> None:
    preset = load_preset("embedded-bf16", {})
    (tmp_path / "presets.toml").write_text(changed(preset, "a", {"vllm": {"x": 'ü 😀 "'}}))
    read = load_presets({"SPEECH_PRESETS": str(tmp_path / "presets.toml")})["a"]
    assert read.vllm == {"x": 'ü 😀 "'}


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file"):
        load_ladder("mine", tmp_path / "absent.toml")


def test_the_table_shows_every_step_with_its_reason() -> None:
    step = {
        "name": "cropped decode",
        "switch": "decode",
        "value": "cropped",
        "note": "what a hop needs",
        "outcome": "adopted",
        "max_realtime_streams": 2.0,
        "ttfa_ms_p50": 123.4,
        "ttfs_ms_p50": 456.7,
        "rtf_p50": 0.456,
        "why": "2 streams against 1",
    }
    impossible = {
        **step,
        "name": "codec on a GPU",
        "outcome": "not possible",
        "max_realtime_streams": None,
        "ttfa_ms_p50": None,
        "ttfs_ms_p50": None,
        "rtf_p50": None,
        "why": "no GPU | here\nreally",
    }
    result = {
        "name": "small",
        "reduced": False,
        "started_at": "2026-11-29T10:00:00Z",
        "device": {"name": "A CPU"},
        "seeds": [1],
        "config": {"preset": {"name": "embedded-bf16"}, "sweep": {"duration_s": 20.0}},
        "rows": [step, impossible],
    }
    text = ladder_table([result])
    assert "| `decode` = cropped; what a hop needs | adopted | 2 | 123 | 457 | 0.456 |" in text
    assert "| not possible | - | - | - | - | no GPU \\| here really |" in text
    assert text.startswith(
        "small, from preset embedded-bf16 on A CPU, 2026-11-29; 20 s a level, 1 seed(s):"
    )


def test_the_ladder_of_random_weights_can_be_climbed() -> None:
    preset = load_preset("untrained-bf16", {"SPEECH_PRESETS": "server/untrained_presets.toml"})
    ladder = load_ladder("gpu", Path("speech_assets/ladder_untrained.toml"))
    assert ladder.preset == preset.name
    _check_values(preset, ladder)
    refused = replace(ladder, steps=(Step("warp", "largest_hop", 3),))
    with pytest.raises(ConfigError, match="ladder gpu: warp"):
        _check_values(preset, refused)


def test_a_changed_preset_finds_its_files_from_elsewhere() -> None:
    preset = load_preset("embedded-bf16-seeded", {"SPEECH_PRESETS": "server/seeded_presets.toml"})
    row = tomllib.loads(changed(preset, "other", {"largest_hop": 2}))["presets"]["other"]
    for place in ("model", "codec", "lead_ins"):
        assert Path(row[place]).is_absolute()
        assert Path(row[place]).exists()
    plain = changed(load_preset("embedded-bf16"), "other", {"largest_hop": 2})
    assert "lead_ins" not in tomllib.loads(plain)["presets"]["other"]
