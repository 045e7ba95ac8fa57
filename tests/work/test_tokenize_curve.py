"""The curve of tokenization on real speech of the corpus that ships, cut short."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import CODEC

from resources.store import Store
from server.codec import load_codec
from speech_assets.corpus import repack, sources
from speech_assets.corpus.archive import archive_split
from speech_assets.corpus.audio import decode_clip
from speech_assets.corpus.benchmark_corpora import EMBEDDED, RepeatedCorpus
from speech_assets.corpus.shards import Shard
from speech_assets.profiles import load_profile
from speech_assets.results.forms import check_form
from speech_assets.scaling.tokenize_tables import curve_table
from speech_assets.work import tokenize_curve
from speech_assets.work.decoding_pool import SpeechOptions
from speech_assets.work.tokenize_curve import Curve, measure
from speech_assets.work.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def test_a_repeated_corpus_is_of_24_khz_wav_with_ids_of_its_own(tmp_path: Path) -> None:
    corpus = RepeatedCorpus.of_shipped(2)
    written: list[int] = []
    profile = replace(load_profile({}), max_clip_s=30.0)
    made = corpus.write(tmp_path, profile, 8, written.append)
    assert written == [1, 1]
    same = load_profile({"SPEECH_PROFILES": str(made), "SPEECH_PROFILE": "repeated"})
    assert (same.max_clip_s, same.codec.location) == (30.0, load_profile({}).codec.location)
    [file] = (tmp_path / "corpus").iterdir()
    assert 0.5 * corpus.size_bytes < file.stat().st_size <= 1.01 * corpus.size_bytes
    table = pq.read_table(file, columns=["id", "audio"])
    rows = table.num_rows
    assert same.corpus.shard_rows == min(1_000, rows // 8)
    assert len(set(table.column("id").to_pylist())) == table.num_rows > 100
    clip = decode_clip(table.column("audio")[0].as_py()["bytes"])
    assert (clip.source_rate_hz, clip.source_channels) == (24_000, 1)


@pytest.mark.timeout(300)
def test_a_curve_has_lengths_and_cores_and_leaves_the_speech_as_it_was(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        '[corpora.some]\nkind = "parquet"\npath = "' + str(EMBEDDED) + '"\n'
        'splits = { train = "train-00000-*.parquet" }\nshard_rows = 8\n'
        '[profiles.some]\ncorpus = "some"\ncodec = "embedded"\n'
    )
    corpus = load_profile({"SPEECH_PROFILES": str(profiles), "SPEECH_PROFILE": "some"}).corpus
    store = Store(str(tmp_path / "store"))
    [(split, files)] = sources.source_files(corpus).items()
    count = repack.shard_count(sources.row_count(corpus, split, files), corpus.shard_rows)
    archive_split(corpus, split, count, store, lambda _: None)
    shards = [Shard(split, index) for index in range(2)]
    curve = Curve(store, shards, load_codec(CODEC), SpeechOptions(), audio_s=4.0, round_s=0)
    cores = os.sched_getaffinity(0)
    # Speech is made first here: the encoder's rows read it.
    speech = list(curve.speech_rows(2))
    assert [row["cores"] for row in speech][-1] == len(cores)
    assert [len(row["seconds"]) for row in speech] == [2] * len(speech)
    before = [store.read_bytes(shard.object_key("speech")) for shard in shards]
    result = measure(
        curve,
        1,
        lambda _: None,
        device={"name": "A CPU"},
        started_at="2026-11-30T00:00:00Z",
        command="a test",
        reduced=True,
        corpus="some",
    )
    assert os.sched_getaffinity(0) == cores
    assert [store.read_bytes(shard.object_key("speech")) for shard in shards] == before
    value = result.as_json()
    assert [row["clip_s"] for row in value["rows"] if row["varied"] == "clip_s"] == [1.0, 2.0]
    check_form(json.dumps(value).encode(), "the test's")
    assert curve_table([value]).count("\n| A CPU") == len(value["rows"])


def test_a_round_of_the_curve_goes_on_until_it_is_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, given = [0.0], []

    def encode(_: Tokenizer, clips: list[NDArray[np.int16]]) -> None:
        clock[0] += 0.4
        given.append(len(clips))

    monkeypatch.setattr(tokenize_curve.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Tokenizer, "encode", encode)
    codec = load_codec(CODEC)
    curve = Curve(Store(str(tmp_path)), [], codec, SpeechOptions(), round_s=1.0)
    row = curve._encoded("clip_s", np.zeros(72_000, np.int16), 1.0, 0, 2)
    assert given == [1] + [3] * 6  # A warm-up, then two rounds of three times.
    assert row["seconds"] == pytest.approx([1.2, 1.2])
    assert row["hours_per_min"] == pytest.approx(9 / 60 / 1.2)
