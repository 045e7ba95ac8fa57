"""The catalogue of LibriTTS-R: every value has its source; what cannot work is said."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING

import pytest
from published import SPLITS, catalogue_text, write_catalogue

from speech_assets.corpus.catalogue import (
    TABLE,
    corpus_catalogue,
    load_catalogue,
    rows_expected,
    taken_splits,
)
from speech_assets.corpus.sources import row_count, source_files
from speech_assets.errors import ConfigError
from speech_assets.partitions import corpus_partitions
from speech_assets.profiles import Corpus, load_profile

if TYPE_CHECKING:
    from pathlib import Path

SMALL = catalogue_text({"dev-clean": b"1"}, {"dev-clean": 3})
MD5 = hashlib.md5(b"1").hexdigest()


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_catalogue(folder / write_catalogue(folder, text))
    return str(caught.value)


def test_both_origins_have_the_seven_splits_and_every_column_its_source() -> None:
    catalogue = load_catalogue(TABLE)  # Refuses a column without a source.
    assert set(catalogue.archived) == set(catalogue.on_hub) == set(SPLITS)
    for split, entry in catalogue.archived.items():
        assert entry.file == f"{split.replace('-', '_')}.tar.gz"
        assert re.fullmatch("[0-9a-f]{32}", entry.md5 or "")
        assert entry.rows is None  # Not published: learnt when the archive is read.
        hub = catalogue.on_hub[split]
        assert hub.folder == f"data/{split.replace('-', '.')}"
        assert hub.rows <= entry.rows_at_most
    assert sum(entry.rows for entry in catalogue.on_hub.values()) == 374_999
    assert re.fullmatch("[0-9a-f]{40}", catalogue.revision)


def test_profiles_take_one_split_or_all_and_their_shards_are_counted_without_a_network() -> None:
    l4 = corpus_partitions(load_profile({"SPEECH_PROFILE": "l4"}).corpus)
    assert {split: len(keys) for split, keys in l4.shards_of_split.items()} == {
        "train-clean-100": 34
    }
    whole = corpus_partitions(load_profile({"SPEECH_PROFILE": "h200"}).corpus).shards_of_split
    assert set(whole) == set(SPLITS)
    assert len(whole["train-other-500"]) == 206
    assert sum(map(len, whole.values())) == 379


def test_a_catalogue_of_ones_own_replaces_it(tmp_path: Path) -> None:
    path = write_catalogue(tmp_path, SMALL)
    corpus = Corpus("mine", "libritts-r", catalogue=path)
    assert source_files(corpus) == {"dev-clean": []}
    assert row_count(corpus, "dev-clean", []) == rows_expected(corpus, "dev-clean") == 3
    missing = dataclasses.replace(corpus, take=("dev-clean", "dev-other"))
    with pytest.raises(ConfigError, match="take has 'dev-other', which origin 'openslr' does not"):
        corpus_catalogue(missing)
    assert taken_splits(corpus) == ["dev-clean"]


def test_two_splits_of_one_file_are_refused(tmp_path: Path) -> None:
    line = next(line for line in SMALL.splitlines() if line.startswith("dev-clean = { file"))
    text = SMALL.replace(line, f"{line}\n{line.replace('dev-clean', 'dev-other', 1)}")
    assert "is at 'dev_clean.tar.gz', where dev-clean is" in refusal(tmp_path, text)


def test_a_catalogue_without_a_split_of_the_origin_is_said(tmp_path: Path) -> None:
    line = next(line for line in SMALL.splitlines() if line.startswith("dev-clean = { file"))
    path = write_catalogue(tmp_path, SMALL.replace(line, ""))
    with pytest.raises(ConfigError, match="its catalogue has no split of origin 'openslr'"):
        corpus_catalogue(Corpus("mine", "libritts-r", catalogue=path))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size_bytes = 1,", 'size_bytes = "1",', "openslr.splits.dev-clean.size_bytes is '1'"),
        ("size_bytes = 1,", "bytes = 1,", "dev-clean.bytes is no column; the columns are file, "),
        (", rows_at_most = 3", "", "has neither rows nor rows_at_most"),
        ('md5 = "here"\n', "", "openslr.from.md5 is missing; say where its values were read"),
        ('licence = "here"', "", "from.licence is missing"),
        ('folder = "here"\n', "", "hub.from.folder is missing"),
        ('licence = "CC BY 4.0"\n', "", "lacks 'licence'; it has the form of libritts_r.toml"),
        ('repository = "owner/libritts_r"', "repository = 3", "repository is 3; it must be a text"),
        ('"dev_clean.tar.gz"', '"../dev_clean.tar.gz"', "give a place below its origin"),
        *(
            ('"dev_clean.tar.gz"', f'"{place}"', "give a place below its origin")
            for place in (
                "",
                ".",
                "a/./b",
                "a//b",
                "/a",
                "a/",
                "http://x/y",
                "a?b",
                "a\\u0000b",
                "x" * 300,
            )
        ),
        ("[hub]", '[hub]\nrevision = "../x"', "hub.revision is '../x'; give a commit"),
        ("dev-clean = { file", '"dev/clean" = { file', "a split's name may hold only letters"),
        ("[hub]", "[hub", "is not TOML"),
        ("[hub]", "x = " + "[" * 5_000 + "]" * 5_000 + "\n[hub]", "is nested too deep"),
        ("[openslr.from]", "from = 5\n[openslr.other]", "openslr.from is 5; it must be a table"),
        ("rows_at_most = 3", "rows_at_most = -3", "rows_at_most is -3; it must be from 1 to 5e+07"),
        (
            "rows_at_most = 3",
            "rows_at_most = 33_236_000_000",
            "33236000000; it must be from 1 to",
        ),
        (
            "size_bytes = 1,",
            "size_bytes = -1,",
            "dev-clean.size_bytes is -1; it must be from 1",
        ),
        ("rows = 3 }", "rows = 0, rows_at_most = 3 }", "dev-clean.rows is 0; it must be from 1"),
        (MD5, MD5 + " ", f"dev-clean.md5 is '{MD5} '; it must be 32 hex digits"),
        (MD5, "", "dev-clean.md5 is ''; it must be 32 hex digits"),
    ],
)
def test_a_table_that_cannot_work_says_what_and_where(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert SMALL.count(old) >= 1
    assert words in refusal(tmp_path, SMALL.replace(old, new, 1))


def test_a_checksum_in_capitals_is_the_same(tmp_path: Path) -> None:
    path = write_catalogue(tmp_path, SMALL.replace(MD5, MD5.upper()))
    assert load_catalogue(tmp_path / path).archived["dev-clean"].md5 == MD5


def test_a_catalogue_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory; give a TOML file"):
        load_catalogue(tmp_path / "none.toml")


def test_a_catalogue_is_looked_up_from_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    table = tmp_path / "profiles.toml"
    table.write_text(
        '[corpora.mine]\nkind = "libritts-r"\ncatalogue = "small.toml"\n'
        '[profiles.mine]\ncorpus = "mine"\ncodec = "embedded"\n'
    )
    corpus = load_profile({"SPEECH_PROFILES": str(table), "SPEECH_PROFILE": "mine"}).corpus
    assert corpus.catalogue == str(tmp_path / "small.toml")
