"""The table of profiles and a user's own: what is chosen, and what an error says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speech_assets.errors import ConfigError
from speech_assets.profiles import TABLE, Profile, load_profile

CORPUS = '[corpora.mine]\nkind = "parquet"\npath = "."\nsplits = { train = "*.parquet" }\n'
PROFILE = '[profiles.mine]\ncorpus = "mine"\ncodec = "embedded"\n'


def load(folder: Path, toml: str | bytes, profile: str = "mine") -> Profile:
    """The profile that `toml`, as a user's file in `folder`, makes."""
    file = folder / "profiles.toml"
    file.write_bytes(toml.encode() if isinstance(toml, str) else toml)
    return load_profile({"SPEECH_PROFILES": str(file), "SPEECH_PROFILE": profile})


def refusal(folder: Path, toml: str | bytes, profile: str = "mine") -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, toml, profile)
    return str(caught.value)


def test_the_embedded_profile_is_the_default_and_needs_nothing_else() -> None:
    profile = load_profile({})
    assert profile == load_profile({"SPEECH_PROFILE": "", "SPEECH_PROFILES": ""})
    assert (profile.name, profile.corpus.name, profile.codec.name) == ("embedded",) * 3
    assert Path(profile.corpus.path).is_dir()
    assert Path(profile.codec.location).is_dir()


@pytest.mark.parametrize("name", ["embedded", "l4", "h200"])
def test_every_profile_that_ships_loads(name: str) -> None:
    assert load_profile({"SPEECH_PROFILE": name}).name == name


def test_levels_of_load_are_a_profiles_own(tmp_path: Path) -> None:
    profile = load(tmp_path, CORPUS + PROFILE + "load_levels = [1, 4, 16]\n")
    assert profile.load_levels == (1.0, 4.0, 16.0)
    assert load(tmp_path, CORPUS + PROFILE).load_levels == (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)


def test_what_hears_a_profiles_samples_is_a_name_or_a_file_beside_it(tmp_path: Path) -> None:
    assert load_profile({}).asr == load(tmp_path, CORPUS + PROFILE).asr == "tiny.en-package"
    for name in ("l4", "h200"):
        assert load_profile({"SPEECH_PROFILE": name}).asr == "large-v3"
    assert load(tmp_path, CORPUS + PROFILE + 'asr = "small.en"\n').asr == "small.en"
    mine = load(tmp_path, CORPUS + PROFILE + 'asr = "models/mine.pt"\n')
    assert mine.asr == str(tmp_path / "models" / "mine.pt")


def test_an_unknown_profile_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"SPEECH_PROFILE is 'l5', .*embedded, h200, l4"):
        load_profile({"SPEECH_PROFILE": "l5"})


def test_a_users_file_adds_rows_to_ours(tmp_path: Path) -> None:
    profile = load(tmp_path, CORPUS + PROFILE)
    assert (profile.name, profile.corpus.name, profile.codec.name) == ("mine", "mine", "embedded")
    assert profile.codec == load_profile({}).codec
    assert load(tmp_path, CORPUS + PROFILE, "l4") == load_profile({"SPEECH_PROFILE": "l4"})


def test_a_users_row_replaces_ours_of_the_same_name_whole(tmp_path: Path) -> None:
    profile = load(tmp_path, CORPUS.replace("mine", "embedded"), "embedded")
    assert profile.corpus.path == str(tmp_path)
    assert profile.corpus.shard_rows == 1_000  # Ours says 64.


def test_folders_are_looked_up_from_the_file_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home / "codec", elsewhere):
        folder.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    codec = '[codecs.mine]\nlocation = "codec"\n[codecs.hub]\nlocation = "owner/name@abc"\n'
    toml = (CORPUS + PROFILE).replace('"."', '"../data"').replace('"embedded"', '"mine"') + codec
    profile = load(home, toml)
    assert profile.corpus.path == str(tmp_path / "data")
    assert profile.codec.location == str(home / "codec")
    hub = load(home, toml.replace('codec = "mine"', 'codec = "hub"'))
    assert hub.codec.location == "owner/name@abc"
    monkeypatch.chdir(home)
    relative = {"SPEECH_PROFILES": "profiles.toml", "SPEECH_PROFILE": "mine"}
    assert load_profile(relative).corpus.path == str(tmp_path / "data")


def test_absolute_paths_and_home_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(tmp_path, CORPUS.replace('"."', '"/data"') + PROFILE).corpus.path == "/data"
    at_home = load(tmp_path, CORPUS.replace('"."', '"~/data"') + PROFILE)
    assert at_home.corpus.path == str(tmp_path / "data")


def test_every_setting_of_a_profile_can_be_set(tmp_path: Path) -> None:
    profile = load(
        tmp_path,
        '[corpora.mine]\nkind = "folder"\npath = "a"\nmetadata = "m.csv"\ndelimiter = "|"\n'
        'columns = ["id", "text"]\nsplit = "all"\nsource = "home"\nlicence = "CC0"\n'
        "shard_rows = 5\n"
        + PROFILE
        + 'device = "cuda"\nbatch_samples = 0\ncompile = true\nprecision = "bf16"\n'
        + "max_clip_s = 30\n",
    )
    assert profile.corpus.columns == ("id", "text")
    assert profile.corpus.delimiter == "|"
    assert (profile.device, profile.batch_samples, profile.max_clip_s) == ("cuda", 0, 30.0)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("corpora.mine.colour", '"red"'),
        ("corpora.mine.name", '"other"'),
        ("profiles.mine.color", "1"),
        ("profiles.mine.name", '"other"'),
    ],
)
def test_an_unknown_setting_is_named_with_those_that_exist(
    tmp_path: Path, place: str, value: str
) -> None:
    table, row, key = place.split(".")
    toml = (CORPUS + PROFILE).replace(f"[{table}.{row}]\n", f"[{table}.{row}]\n{key} = {value}\n")
    message = refusal(tmp_path, toml)
    assert message.startswith(f"{place} is not a setting; the settings are ")
    assert ("shard_rows" if table == "corpora" else "precision") in message


WRONG_CORPUS: dict[str, Any] = {
    'kind = "csv"': ("kind", "'csv'"),
    "path = 3": ("path", "3"),
    'path = ""': ("path", "missing"),
    "shard_rows = 0": ("shard_rows", "0"),
    "shard_rows = 1001": ("shard_rows", "1001"),
    "shard_rows = -5": ("shard_rows", "-5"),
    "shard_rows = 10.5": ("shard_rows", "10.5"),
    'shard_rows = "64"': ("shard_rows", "'64'"),
    "shard_rows = true": ("shard_rows", "True"),
    'splits = "*.parquet"': ("splits", "'*.parquet'"),
    "splits = {}": ("splits", "missing"),
    "splits = { train = 3 }": ("splits.train", "3"),
    'splits = { "a.b" = "*" }': ("split", "'a.b'"),
    'splits = { "../x" = "*" }': ("split", "'../x'"),
    'splits = { "" = "*" }': ("split", "''"),
    'split = ""': ("split", "''"),
    'split = "a b"': ("split", "'a b'"),
    'delimiter = ""': ("delimiter", "''"),
    'delimiter = "||"': ("delimiter", "'||'"),
    'delimiter = "\\n"': ("delimiter", "'\\n'"),
    "delimiter = '\"'": ("delimiter", "'\"'"),
    'columns = "id"': ("columns", "'id'"),
    'take = "train"': ("take", "train"),
    "source = 3": ("source", "3"),
    "shard_rows = nan": ("mine", "not finite"),
}


@pytest.mark.parametrize("setting", WRONG_CORPUS)
def test_a_wrong_value_in_a_corpus_is_named_with_its_place(tmp_path: Path, setting: str) -> None:
    key, value = WRONG_CORPUS[setting]
    lines = [
        line for line in CORPUS.splitlines() if not line.startswith(setting.split(" = ")[0] + " ")
    ]
    message = refusal(tmp_path, "\n".join([*lines, setting, PROFILE]))
    assert message.startswith("corpora.mine")
    assert key in message
    assert value in message


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('device = "tpu"', "profiles.mine.device is 'tpu'"),
        ("compile = 1", "profiles.mine.compile is 1"),
        ('precision = "int8"', "profiles.mine.precision is 'int8'"),
        ("max_clip_s = 0", "profiles.mine.max_clip_s is 0"),
        ("max_clip_s = -1", "profiles.mine.max_clip_s is -1"),
        ("max_clip_s = 1e9", "it must be 1 to 3600"),
        ("max_clip_s = inf", "profiles.mine has a number that is not finite"),
        ("max_clip_s = nan", "profiles.mine has a number that is not finite"),
        ('max_clip_s = "60"', "profiles.mine.max_clip_s is '60'"),
        ("max_clip_s = 2020-01-01", "profiles.mine.max_clip_s is '2020-01-01'"),
        ("batch_samples = -1", "profiles.mine.batch_samples is -1; it must be 0 or more"),
        ("gpus_per_run = -1", "profiles.mine.gpus_per_run is -1; it must be 0 or more"),
        ("load_levels = [2, 1]", "profiles.mine.load_levels: levels must ascend"),
        ("load_levels = [0, 1]", "profiles.mine.load_levels: 0 is no level"),
        ("load_levels = []", "profiles.mine.load_levels: there is no level"),
        ('load_levels = ["a"]', "profiles.mine.load_levels.0 is 'a'"),
        ("batch_samples = 1.5", "profiles.mine.batch_samples is 1.5"),
    ],
)
def test_a_wrong_value_in_a_profile_is_named_with_its_place(
    tmp_path: Path, setting: str, words: str
) -> None:
    assert words in refusal(tmp_path, CORPUS + PROFILE + setting + "\n")


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (PROFILE, "profiles.mine.corpus is 'mine', which is not a row of corpora"),
        (CORPUS + '[profiles.mine]\ncorpus = "mine"\n', "profiles.mine.codec is ''"),
        (CORPUS + '[profiles.mine]\ncorpus = "mine"\ncodec = 3\n', "profiles.mine.codec is 3"),
        (CORPUS + '[profiles.mine]\ncorpus = ["mine"]\n', "profiles.mine.corpus is ['mine']"),
        ("[corpora.mine]\n" + PROFILE, "corpora.mine.kind is missing"),
        (
            CORPUS + PROFILE.replace('"embedded"', '"mine"') + "[codecs.mine]\n",
            "codecs.mine.location is missing",
        ),
        (
            '[corpora.mine]\nkind = "libritts-r"\nurl = "ftp://a"\n' + PROFILE,
            "corpora.mine.url is 'ftp://a'; it must begin with http://",
        ),
        (
            '[corpora.mine]\nkind = "libritts-r"\norigin = "tape"\n' + PROFILE,
            "corpora.mine.origin is 'tape'",
        ),
        (
            '[corpora.mine]\nkind = "libritts-r"\ntake = ["a/b"]\n' + PROFILE,
            "split 'a/b' may hold only letters",
        ),
        ('[corpora.mine]\nkind = "folder"\n' + PROFILE, "corpora.mine.path is missing"),
        (
            '[corpora.mine]\nkind = "parquet"\npath = "."\n' + PROFILE,
            "corpora.mine.splits is missing",
        ),
        ("[corpus.mine]\n", "unknown table [corpus]; the tables are corpora, codecs and profiles"),
        ("corpora = 3\n", "corpora is 3; it must be a table"),
        ("[corpora]\nmine = 3\n", "corpora.mine must be a table of settings"),
        ("[corpora.mine\n", "is not TOML"),
        ("[corpora.mine]\nkind = parquet\n", "line 2"),
        (CORPUS + CORPUS, "is not TOML"),
        (b"\xff\xfe[\0", "is not TOML"),
    ],
)
def test_a_table_that_cannot_work_says_what_and_where(
    tmp_path: Path, toml: str | bytes, words: str
) -> None:
    assert words in refusal(tmp_path, toml)


def test_a_file_of_profiles_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.toml", tmp_path):
        with pytest.raises(ConfigError, match=rf"SPEECH_PROFILES={path}: .*give a TOML file"):
            load_profile({"SPEECH_PROFILES": str(path)})


def test_an_error_in_a_users_file_names_that_file(tmp_path: Path) -> None:
    assert str(tmp_path / "profiles.toml") in refusal(tmp_path, "[what.ever]\n")
    assert TABLE.is_file()
