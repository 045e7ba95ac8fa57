"""The tokens stage on real speech: exact, checked before storing, resumable; a bad shard is one."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import torch
from conftest import CODEC, ROOT, SHORT_SHARDS, archive_short_corpus

from resources.store import Store
from server import frames
from server.codec import load_codec
from speech_assets.corpus.audio import from_pcm16
from speech_assets.corpus.fidelity import compare, faults
from speech_assets.corpus.shards import (
    SPEECH_SCHEMA,
    TOKEN_SCHEMA,
    Shard,
    check_token_table,
    codes_of,
    metadata_of,
)
from speech_assets.work import worker
from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions
from speech_assets.work.speech_shards import make_shard
from speech_assets.work.token_shards import checked_clips
from speech_assets.work.tokenizer import EncodeOptions, Tokenizer
from speech_assets.work.tokens import StageClock, _run_figures, tokenize_shards

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from server.codec import Codec
    from speech_assets.profiles import Corpus


class Recorder(worker.Reporter):
    """Keeps what would be reported."""

    def __init__(self) -> None:
        super().__init__("tokens")
        self.results: list[dict[str, Any]] = []

    def result(self, kind: str, **values: Any) -> None:
        self.results.append({"kind": kind, **values})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [result for result in self.results if result["kind"] == kind]


@pytest.fixture(scope="module")
def codec() -> Codec:
    torch.set_num_threads(1)
    return load_codec(CODEC)


@pytest.fixture(scope="module")
def speech_store(tmp_path_factory: pytest.TempPathFactory, short_corpus: Corpus) -> Store:
    """A store with archives and speech of the short corpus, made once."""
    made = archive_short_corpus(str(tmp_path_factory.mktemp("speech")), short_corpus)
    with DecodingPool(1, SpeechOptions()) as pool:
        for shard in SHORT_SHARDS:
            make_shard(made, shard, SpeechOptions(), pool)
    return made


@pytest.fixture
def store(speech_store: Store, tmp_path: Path) -> Store:
    """A copy of it, to write to."""
    shutil.copytree(speech_store.root, tmp_path / "store")
    return Store(str(tmp_path / "store"))


def clips_of(store: Store, shard: Shard) -> dict[str, NDArray[np.float32]]:
    with store.open(shard.object_key("speech")) as file:
        rows = pq.read_table(file).to_pylist()
    return {row["id"]: from_pcm16(np.frombuffer(row["pcm"], "<i2")) for row in rows}


def test_shards_hold_the_codes_of_each_clip_alone_whatever_the_batches(
    store: Store, codec: Codec
) -> None:
    written: set[bytes] = set()
    for batch_samples, threads in ((0, 1), (400_000, 1), (0, 3)):
        tokenizer = Tokenizer(codec, EncodeOptions(batch_samples, threads=threads))
        for shard in SHORT_SHARDS:
            store.delete(shard.object_key("tokens"))
        recorder = Recorder()
        assert tokenize_shards(store, SHORT_SHARDS, tokenizer, recorder) == []
        assert [r["agreement"] for r in recorder.of("shard")] == [1.0] * 4
        written.add(b"".join(store.read_bytes(s.object_key("tokens")) for s in SHORT_SHARDS))
    assert len(written) == 1
    for shard in SHORT_SHARDS:
        clips = clips_of(store, shard)
        with store.open(shard.object_key("tokens")) as file:
            table = pq.read_table(file)
        assert check_token_table(table) == []
        assert table["id"].to_pylist() == sorted(clips)
        for row in table.to_pylist():
            assert np.array_equal(codes_of(row), codec.encode(clips[row["id"]]))
            assert row["frame_count"] == frames.frame_count(row["sample_count"])


def test_a_shards_seconds_are_those_of_its_reading_encoding_and_storing(
    store: Store, codec: Codec
) -> None:
    recorder = Recorder()
    tokenize_shards(store, SHORT_SHARDS, Tokenizer(codec, EncodeOptions(0)), recorder)
    [figures] = recorder.of("figures")
    audio_min = figures["audio_hours"] * 60
    stages = [figures[f"{s}_capacity_hours_per_min"] for s in ("read", "encode", "finish")]
    assert sum(shard["seconds"] for shard in recorder.of("shard")) == pytest.approx(
        sum(audio_min / hours_per_min for hours_per_min in stages)
    )


def test_a_shard_says_what_it_was_made_with(store: Store, codec: Codec) -> None:
    tokenize_shards(store, SHORT_SHARDS[:1], Tokenizer(codec, EncodeOptions(0)), Recorder())
    with store.open(SHORT_SHARDS[0].object_key("tokens")) as file:
        parquet = pq.ParquetFile(file)
        metadata = metadata_of(parquet.schema_arrow)
        compression = parquet.metadata.row_group(0).column(0).compression
    assert compression == "ZSTD"
    assert metadata["codec"] == codec.identity.name
    assert metadata["codec_weights_sha256"] == codec.identity.weights_sha256
    assert metadata["codec_trained"] == "true"
    assert metadata["layout_version"] == str(frames.LAYOUT_VERSION)
    assert len(metadata["fingerprint"]) == 32
    figures = json.loads(metadata["figures"])
    assert figures["checked_clips"] == min(8, figures["rows"])
    assert figures["silent_clips"] == 0


def test_a_valid_shard_is_skipped_and_another_codec_makes_it_anew(
    store: Store, codec: Codec, tmp_path: Path
) -> None:
    shard = SHORT_SHARDS[3]
    tokenizer = Tokenizer(codec, EncodeOptions(0))
    tokenize_shards(store, [shard], tokenizer, Recorder())
    first = store.read_bytes(shard.object_key("tokens"))
    recorder = Recorder()
    tokenize_shards(store, [shard], tokenizer, recorder)
    assert [r["made"] for r in recorder.of("shard")] == [False]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_bytes((CODEC / "config.json").read_bytes())
    untrained = load_codec(tmp_path / "other", allow_untrained=True)
    recorder = Recorder()
    tokenize_shards(store, [shard], Tokenizer(untrained, EncodeOptions(0)), recorder)
    assert [r["made"] for r in recorder.of("shard")] == [True]
    second = store.read_bytes(shard.object_key("tokens"))
    assert second != first
    metadata = metadata_of(pq.read_schema(io.BytesIO(second)))
    assert metadata["codec_trained"] == "untrained"
    assert metadata["codec"].startswith("untrained-")


def test_the_peak_of_memory_is_that_of_the_gpu_which_the_process_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks = {torch.device("cuda:0"): 0, torch.device("cuda:1"): 2**31}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: peaks[device])
    second = SimpleNamespace(
        codec=SimpleNamespace(device=torch.device("cuda:1")), device_busy_s=1.0
    )
    figures = _run_figures(second, StageClock(), audio_s=60.0, wall_s=2.0)
    assert figures["peak_memory_gib"] == 2.0


def test_codes_that_differ_from_the_reference_are_not_stored(store: Store, codec: Codec) -> None:
    class Faulty(Tokenizer):
        def encode(self, clips: list[NDArray[np.int16]]) -> list[NDArray[np.uint16]]:
            codes = super().encode(clips)
            for clip in codes:
                clip[0, 2] ^= 1
            return codes

    recorder = Recorder()
    failures = tokenize_shards(store, SHORT_SHARDS[:1], Faulty(codec, EncodeOptions(0)), recorder)
    assert len(failures) == 1
    assert "shard train.000: codes differ from the reference: overall 9" in failures[0]
    assert "level 2" in failures[0]
    assert not store.exists(SHORT_SHARDS[0].object_key("tokens"))
    assert recorder.of("shard") == []


def test_a_damaged_speech_shard_is_named_and_the_others_are_done(
    store: Store, codec: Codec
) -> None:
    store.write_bytes(SHORT_SHARDS[1].object_key("speech"), b"PAR1 damaged PAR1")
    recorder = Recorder()
    failures = tokenize_shards(store, SHORT_SHARDS, Tokenizer(codec, EncodeOptions(0)), recorder)
    assert len(failures) == 1
    assert "train.001.parquet is not parquet" in failures[0]
    assert [r["shard"] for r in recorder.of("shard")] == ["train.000", "train.002", "dev.000"]
    assert [r["shard"] for r in recorder.of("failed")] == ["train.001"]


def test_a_shard_without_a_usable_row_is_an_empty_shard(store: Store, codec: Codec) -> None:
    shard = SHORT_SHARDS[2]
    from speech_assets.corpus.shards import with_metadata, write_rows

    schema = with_metadata(
        SPEECH_SCHEMA, {"fingerprint": "f", "statistics": json.dumps({"kept_s": 0.0})}
    )
    store.write(shard.object_key("speech"), lambda file: write_rows(file, schema, []))
    assert tokenize_shards(store, [shard], Tokenizer(codec, EncodeOptions(0)), Recorder()) == []
    with store.open(shard.object_key("tokens")) as file:
        table = pq.read_table(file)
    assert table.num_rows == 0
    assert table.schema.remove_metadata().equals(TOKEN_SCHEMA)


def test_the_sample_that_is_checked_is_the_same_each_time_and_large_enough() -> None:
    assert checked_clips(Shard("train", 7), 5) == [0, 1, 2, 3, 4]
    assert len(checked_clips(Shard("train", 7), 100)) == 8
    large = checked_clips(Shard("train", 7), 1_000)
    assert len(large) == 10
    assert large == checked_clips(Shard("train", 7), 1_000)
    assert large != checked_clips(Shard("train", 8), 1_000)


def test_fidelity_tells_a_clip_from_another_and_from_one_a_frame_late(
    store: Store, codec: Codec
) -> None:
    clips = [clip for shard in SHORT_SHARDS for clip in clips_of(store, shard).values()]
    decoded = [codec.decode(codec.encode(clip))[: len(clip)] for clip in clips]
    right = [compare(a, b) for a, b in zip(clips, decoded, strict=True)]
    other = [compare(a, b) for a, b in zip(clips, decoded[1:] + decoded[:1], strict=True)]
    late = [
        compare(a, np.pad(b, (frames.SAMPLES_PER_FRAME, 0)))
        for a, b in zip(clips, decoded, strict=True)
    ]

    def mean(values: list[Any]) -> Any:
        return type(values[0])(
            float(np.mean([v.log_mel_distance_db for v in values])),
            float(np.mean([v.envelope_correlation for v in values])),
        )

    assert faults(mean(right)) == []
    assert faults(mean(other))
    assert faults(mean(late))


def test_a_row_is_decoded_back_to_a_wav(store: Store, codec: Codec, tmp_path: Path) -> None:
    tokenize_shards(store, SHORT_SHARDS[3:], Tokenizer(codec, EncodeOptions(0)), Recorder())
    clips = clips_of(store, SHORT_SHARDS[3])
    name, clip = next(iter(clips.items()))
    command = [sys.executable, "-m", "speech_assets.work.decode_row", "--store", store.root]
    listed = subprocess.run([*command, "dev.000"], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == list(clips)
    wav = tmp_path / "row.wav"
    subprocess.run([*command, "dev.000", name, str(wav)], capture_output=True, check=True)
    audio, rate_hz = soundfile.read(wav, dtype="float32")
    assert rate_hz == frames.SAMPLE_RATE_HZ
    assert len(audio) == len(clip)
    assert compare(clip, audio).envelope_correlation > 0.8
    wrong = subprocess.run(
        [*command, "dev.000", "nobody"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "has no row 'nobody'" in wrong.stderr


def test_a_token_shard_with_a_flipped_bit_is_made_again(store: Store, codec: Codec) -> None:
    shard = SHORT_SHARDS[3]
    tokenizer = Tokenizer(codec, EncodeOptions(0))
    tokenize_shards(store, [shard], tokenizer, Recorder())
    whole = store.read_bytes(shard.object_key("tokens"))
    with store.open(shard.object_key("tokens")) as file:
        column = (
            pq.ParquetFile(file).metadata.row_group(0).column(TOKEN_SCHEMA.names.index("codes"))
        )
    damaged = bytearray(whole)
    damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 4
    store.write_bytes(shard.object_key("tokens"), bytes(damaged))
    recorder = Recorder()
    assert tokenize_shards(store, [shard], tokenizer, recorder) == []
    assert [r["made"] for r in recorder.of("shard")] == [True]
    assert store.read_bytes(shard.object_key("tokens")) == whole


def test_a_wav_stays_in_this_folder_whatever_the_id_says(
    store: Store, codec: Codec, tmp_path: Path
) -> None:
    shard = SHORT_SHARDS[3]
    tokenize_shards(store, [shard], Tokenizer(codec, EncodeOptions(0)), Recorder())
    with store.open(shard.object_key("tokens")) as file:
        table = pq.read_table(file)
    ids = ["../../over/there", *table["id"].to_pylist()[1:]]
    altered = table.set_column(0, "id", pa.array(ids))
    altered = altered.cast(TOKEN_SCHEMA).replace_schema_metadata(table.schema.metadata)
    store.write(shard.object_key("tokens"), lambda file: pq.write_table(altered, file))
    command = [sys.executable, "-m", "speech_assets.work.decode_row", "dev.000", ids[0]]
    environment = {**os.environ, "SPEECH_STORE": store.root, "PYTHONPATH": str(ROOT)}
    here = tmp_path / "here"
    here.mkdir()
    subprocess.run(command, cwd=here, env=environment, capture_output=True, check=True)
    assert [path.name for path in here.iterdir()] == ["_.._over_there.wav"]
    wrong = subprocess.run(
        [*command, "row.xyz"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 2
    assert "end it in .wav" in wrong.stderr
