"""Bad rows among good ones, from source parquet through archives to speech and quarantine."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soxr

from resources.store import Store
from speech_assets.corpus import sources
from speech_assets.corpus.audio import decode_clip, from_pcm16
from speech_assets.corpus.quarantine import REASONS, QuarantinedRow, Reason, read_quarantine
from speech_assets.corpus.repack import repack_split, shard_count
from speech_assets.corpus.shards import ARCHIVE_SCHEMA, SPEECH_SCHEMA, Shard, iterate_rows
from speech_assets.corpus.speech_rows import SpeechRow
from speech_assets.errors import CorpusError, ShardError
from speech_assets.profiles import Corpus
from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions, decode_rows
from speech_assets.work.speech_shards import make_shard
from tests.corpus.encoded import RATE_HZ, encoded, likeness, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Row = dict[str, Any]
OPTIONS = SpeechOptions()
DEADLY = b"these bytes kill whoever decodes them"


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a corpus: rows of its speech shards by id, what was set aside, statistics."""

    kept: dict[str, Row]
    set_aside: list[QuarantinedRow]
    statistics: list[dict[str, Any]]

    @property
    def only_set_aside(self) -> QuarantinedRow:
        (row,) = self.set_aside
        return row


@pytest.fixture(scope="module")
def pool() -> Iterator[DecodingPool]:
    """Two decoding processes for the whole module."""
    with DecodingPool(2, OPTIONS) as pool:
        yield pool


@pytest.fixture(scope="module")
def good(short_rows: list[Row]) -> list[Row]:
    """Six short clips of real speech."""
    return short_rows[:6]


@pytest.fixture(scope="module")
def unspoiled(
    good: list[Row], pool: DecodingPool, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Row]:
    """Speech rows of the good rows when they are alone."""
    made = make(tmp_path_factory.mktemp("good"), good, pool)
    assert sorted(made.kept) == [row["id"] for row in good]
    assert made.set_aside == []
    return made.kept


@pytest.fixture(scope="module")
def voice(embedded_rows: list[Row]) -> NDArray[np.float32]:
    """A real clip of 2.5 to 4 s at 24 kHz."""
    clips = (decode_clip(row["audio"]["bytes"]).samples for row in embedded_rows)
    return next(clip for clip in clips if 2.5 * RATE_HZ < len(clip) < 4 * RATE_HZ)


def a_row(data: bytes | None, **values: Any) -> Row:
    row = {name: "" for name in ARCHIVE_SCHEMA.names}
    path = values.pop("path", "bad.wav")
    return {
        **row,
        "audio": {"bytes": data, "path": path},
        "path": path,
        "id": "bad",
        "text_normalized": "a bad row",
        **values,
    }


def among(good: Sequence[Row], *bad: Row) -> list[Row]:
    return [*good[:3], *bad, *good[3:]]


def corpus_of(folder: Path, shard_rows: int = 1_000) -> Corpus:
    return Corpus("bad", "parquet", str(folder), {"train": "*.parquet"}, shard_rows=shard_rows)


def make(
    folder: Path, rows: Sequence[Row], pool: DecodingPool, shard_rows: int = 1_000, files: int = 1
) -> Made:
    """What the stages make of `rows`, which lie in `files` parquet files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // files)
    for file in range(files):
        table = pa.Table.from_pylist(rows[file * size : (file + 1) * size], ARCHIVE_SCHEMA)
        pq.write_table(table, folder / f"{file}.parquet")
    return make_corpus(corpus_of(folder, shard_rows), folder / "store", pool)


def make_corpus(corpus: Corpus, root: Path, pool: DecodingPool) -> Made:
    store = Store(str(root))
    files = sources.source_files(corpus)["train"]
    shards = shard_count(sources.row_count(corpus, "train", files), corpus.shard_rows)
    archived, _ = repack_split(corpus, "train", files, shards, store, lambda _: None)
    kept: dict[str, Row] = {}
    set_aside: list[QuarantinedRow] = []
    statistics = []
    for entry in archived:
        shard = Shard.parse(entry.key)
        counted, made = make_shard(store, shard, OPTIONS, pool)
        assert made
        with store.open(shard.object_key("speech")) as file:
            rows = list(iterate_rows(file, SPEECH_SCHEMA.names))
        with store.open(shard.quarantine_key("speech")) as file:
            aside = read_quarantine(file)
        # Nothing is lost, nothing doubled.
        assert counted["rows"] == entry.rows == len(rows) + len(aside)
        assert counted["kept_rows"] == len(rows)
        assert sum(counted["reasons"].values()) == len(aside)
        assert [row["id"] for row in rows] == sorted({row["id"] for row in rows})
        assert not kept.keys() & {row["id"] for row in rows}
        kept |= {row["id"]: row for row in rows}
        set_aside += aside
        statistics.append(counted)
    return Made(kept, set_aside, statistics)


def sine(hz: float, seconds: float = 3.0) -> NDArray[np.float32]:
    return (0.3 * np.sin(2 * np.pi * hz * np.arange(seconds * RATE_HZ) / RATE_HZ)).astype(
        np.float32
    )


def noise(seconds: float = 3.0) -> NDArray[np.float32]:
    random = np.random.default_rng(3)
    return (0.05 * random.normal(size=int(seconds * RATE_HZ))).astype(np.float32)


def brown() -> NDArray[np.float32]:
    drift = np.cumsum(noise())
    return (0.3 * drift / np.abs(drift).max()).astype(np.float32)


def spoiled(voice: NDArray[np.float32], value: float) -> bytes:
    samples = voice.copy()
    samples[12_345] = value
    return written(samples, subtype="FLOAT")


def damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(2_000) + data[middle + 2_000 :]


def an_hour(voice: NDArray[np.float32]) -> bytes:
    minute = np.zeros(60 * 8_000, np.float32)
    speech = soxr.resample(voice, RATE_HZ, 8_000)
    minute[: len(speech)] = speech
    return written(np.tile(minute, 60), 8_000, "FLAC")


# Fault: (bytes of the row, reason, words of the detail).
FAULTS: dict[str, tuple[Callable[[NDArray[np.float32]], bytes | None], Reason, str]] = {
    "random bytes": (
        lambda _: np.random.default_rng(1).bytes(9_000),
        "decode_error",
        "Format not recognised",
    ),
    "text": (lambda _: b"<html>404 not found</html>" * 20, "decode_error", "Format not recognised"),
    "corrupt FLAC": (lambda v: damaged(written(v, form="FLAC")), "decode_error", "samples"),
    "truncated WAV": (lambda v: written(v)[:40_000], "truncated", "39956 are there"),
    "truncated FLAC": (lambda v: written(v, form="FLAC")[:40_000], "truncated", "samples"),
    "truncated Ogg": (lambda v: written(v, form="OGG")[:9_000], "truncated", "Ogg"),
    "truncated AIFF": (lambda v: written(v, form="AIFF")[:40_000], "truncated", "AIFF"),
    "truncated M4A": (lambda v: encoded(v, "ipod", "aac")[:20_000], "truncated", "MP4"),
    "header-only WAV": (lambda _: written(np.zeros(0)), "empty", "header"),
    "WAV cut after its header": (lambda v: written(v)[:44], "truncated", "0 are there"),
    "zero bytes": (lambda _: b"", "empty", "0 bytes"),
    "0.02 s": (lambda v: written(v[10_000:10_480]), "too_short", "0.020 s"),
    "one hour": (an_hour, "too_long", "3600.0 s"),
    "all zeros": (lambda v: written(np.zeros_like(v)), "no_speech", "silent"),
    "constant DC": (lambda v: written(np.full_like(v, 0.25)), "no_speech", "silent"),
    "white noise": (lambda _: written(noise()), "no_speech", "steady"),
    "brown noise": (lambda _: written(brown()), "no_speech", "steady"),
    "a tone": (lambda _: written(sine(440)), "no_speech", "steady"),
    "mains hum": (lambda _: written(sine(50) + sine(150) / 3), "no_speech", "steady"),
    "a NaN": (lambda v: spoiled(v, np.nan), "non_finite", "sample 12345"),
    "an infinity": (lambda v: spoiled(v, np.inf), "non_finite", "sample 12345"),
    "null audio": (lambda _: None, "missing_audio", "no audio bytes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_clip_is_set_aside_with_its_reason_and_the_rest_is_kept_as_it_was(
    fault: str,
    good: list[Row],
    unspoiled: dict[str, Row],
    voice: NDArray[np.float32],
    pool: DecodingPool,
    tmp_path: Path,
) -> None:
    build, reason, words = FAULTS[fault]
    made = make(tmp_path, among(good, a_row(build(voice))), pool)
    assert made.kept == unspoiled
    bad = made.only_set_aside
    assert (bad.id, bad.path, bad.reason) == ("bad", "bad.wav", reason)
    assert words in bad.detail
    position = sorted([*unspoiled, "bad"]).index("bad")
    assert bad.row == position
    (counted,) = made.statistics
    assert counted["reasons"] == {**dict.fromkeys(REASONS, 0), reason: 1}


@pytest.mark.parametrize("text", [None, "", "  \t\n", "\u00a0"], ids=repr)
def test_a_row_without_text_is_set_aside(
    text: str | None,
    good: list[Row],
    unspoiled: dict[str, Row],
    voice: NDArray[np.float32],
    pool: DecodingPool,
    tmp_path: Path,
) -> None:
    made = make(tmp_path, among(good, a_row(written(voice), text_normalized=text)), pool)
    assert made.kept == unspoiled
    assert made.only_set_aside.reason == "missing_text"
    assert "text_normalized" in made.only_set_aside.detail


def test_a_null_in_place_of_the_audio_struct_is_missing_audio(
    good: list[Row], unspoiled: dict[str, Row], pool: DecodingPool, tmp_path: Path
) -> None:
    made = make(tmp_path, among(good, {**a_row(None), "audio": None}), pool)
    assert made.kept == unspoiled
    assert made.only_set_aside.reason == "missing_audio"


# Form: (bytes of the row, path, rate, channels, likeness to the clip).
FORMS: dict[str, tuple[Callable[[NDArray[np.float32]], bytes], str, int, int, float]] = {
    "8-bit unsigned": (lambda v: written(v, subtype="PCM_U8"), "a.wav", RATE_HZ, 1, 0.98),
    "24-bit": (lambda v: written(v, subtype="PCM_24"), "a.wav", RATE_HZ, 1, 0.999),
    "44.1 kHz stereo": (
        lambda v: written(soxr.resample(np.stack([v, v], 1), RATE_HZ, 44_100), 44_100),
        "a.wav",
        44_100,
        2,
        0.999,
    ),
    "8 kHz": (
        lambda v: written(soxr.resample(v, RATE_HZ, 8_000), 8_000),
        "a.wav",
        8_000,
        1,
        0.9,
    ),
    "FLAC": (lambda v: written(v, form="FLAC"), "a.flac", RATE_HZ, 1, 0.999),
    "AIFF": (lambda v: written(v, form="AIFF"), "a.aiff", RATE_HZ, 1, 0.999),
    "MP3": (lambda v: written(v, form="MP3"), "a.mp3", RATE_HZ, 1, 0.98),
    "Ogg Vorbis": (lambda v: written(v, form="OGG"), "a.ogg", RATE_HZ, 1, 0.98),
    "M4A/AAC": (lambda v: encoded(v, "ipod", "aac"), "a.m4a", RATE_HZ, 1, 0.97),
    "WebM/Opus": (lambda v: encoded(v, "webm", "libopus", 48_000), "a.webm", 48_000, 1, 0.97),
    "G.722": (lambda v: encoded(v, "g722", "g722", 16_000), "a.g722", 16_000, 1, 0.97),
    "a streamed FLAC": (
        lambda v: encoded(v, "flac", "flac", streamed=True),
        "a.flac",
        RATE_HZ,
        1,
        0.999,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_speech_in_any_form_is_kept_as_mono_24_khz_of_the_same_content(
    form: str,
    good: list[Row],
    unspoiled: dict[str, Row],
    voice: NDArray[np.float32],
    pool: DecodingPool,
    tmp_path: Path,
) -> None:
    build, path, rate_hz, channels, least = FORMS[form]
    data = build(voice)
    assert decode_clip(data, path=path).source_channels == channels
    made = make(tmp_path, among(good, a_row(data, id="form", path=path)), pool)
    row = made.kept.pop("form")
    assert made.kept == unspoiled
    assert made.set_aside == []
    assert (row["source_rate_hz"], row["gain"]) == (rate_hz, 1.0)
    heard = from_pcm16(np.frombuffer(row["pcm"], "<i2"))
    assert len(heard) == row["sample_count"]
    start, cut = row["trim_start_samples"], row["trim_end_samples"]
    assert -0.001 < (start + len(heard) + cut - len(voice)) / RATE_HZ < 0.1
    assert likeness(heard, voice[start : start + len(heard)]) > least


def test_floats_over_full_scale_are_kept_with_their_gain_and_not_clipped(
    good: list[Row],
    unspoiled: dict[str, Row],
    voice: NDArray[np.float32],
    pool: DecodingPool,
    tmp_path: Path,
) -> None:
    loud = voice / np.abs(voice).max() * np.float32(2.5)
    row = a_row(written(loud, subtype="FLOAT"), id="loud")
    made = make(tmp_path, among(good, row), pool)
    kept = made.kept.pop("loud")
    assert made.kept == unspoiled
    assert kept["gain"] == pytest.approx(1 / 2.5, rel=1e-6)
    pcm = np.frombuffer(kept["pcm"], "<i2")
    assert np.count_nonzero(np.abs(pcm.astype(int)) >= 32_767) <= 2
    start = kept["trim_start_samples"]
    np.testing.assert_allclose(
        from_pcm16(pcm), loud[start : start + len(pcm)] / 2.5, atol=2 / 32_768
    )


TRANSCRIPTS = [
    "Grüße aus Łódź, naïve façade, Ω ≈ 8",
    "مرحبا بالعالم ١٢٣",
    "‏שלום‎ hello",
    "你好,世界",
    "हिन्दी",
    "family 👨‍👩‍👧‍👦 and 🇯🇵",
    "e\u0301 is not \u00e9",
    " spaces are \t kept ",
    'quotes "and" \\ and\nlines',
    "nul \0 inside",
]


def test_transcripts_survive_byte_for_byte(
    good: list[Row], voice: NDArray[np.float32], pool: DecodingPool, tmp_path: Path
) -> None:
    data = written(voice[:RATE_HZ])
    rows = [
        a_row(
            data, id=f"{text} {n}", speaker_id=text, text_normalized=text, text_original=text[::-1]
        )
        for n, text in enumerate(TRANSCRIPTS)
    ]
    made = make(tmp_path, [*good, *rows], pool)
    assert made.set_aside == []
    for n, text in enumerate(TRANSCRIPTS):
        row = made.kept[f"{text} {n}"]
        assert row["text_normalized"].encode() == text.encode()
        assert row["text_original"].encode() == text[::-1].encode()
        assert row["speaker_id"] == text


def test_a_missing_original_text_is_the_normalized_one(
    voice: NDArray[np.float32], pool: DecodingPool, tmp_path: Path
) -> None:
    rows = [a_row(written(voice), text_normalized="said", text_original=None)]
    assert make(tmp_path, rows, pool).kept["bad"]["text_original"] == "said"


def test_of_duplicates_within_a_file_the_first_usable_row_is_kept(
    good: list[Row], voice: NDArray[np.float32], pool: DecodingPool, tmp_path: Path
) -> None:
    rows = [
        a_row(b"unusable", id="twice", text_normalized="zeroth"),
        a_row(written(voice), id="twice", text_normalized="first"),
        a_row(written(voice), id="twice", text_normalized="second"),
    ]
    made = make(tmp_path, [rows[0], *good[:3], rows[1], *good[3:], rows[2]], pool)
    assert made.kept["twice"]["text_normalized"] == "first"
    assert len(made.kept) == len(good) + 1
    assert [row.reason for row in made.set_aside] == ["decode_error", "duplicate_id"]
    assert "first" in made.set_aside[1].detail


def test_duplicates_across_files_meet_in_one_shard(
    good: list[Row], voice: NDArray[np.float32], pool: DecodingPool, tmp_path: Path
) -> None:
    # 12 rows in 6 shards of 2: sorted by id, the same ids straddle every boundary.
    doubled = [
        {**row, "text_normalized": f"{copy} {row['text_normalized']}"}
        for copy in ("first", "second")
        for row in good
    ]
    doubled[0]["id"] = doubled[6]["id"] = doubled[1]["id"]  # Four of one id.
    made = make(tmp_path, doubled, pool, shard_rows=2, files=3)
    assert len(made.statistics) == 6
    assert len(made.kept) == 5
    assert all(row["text_normalized"].startswith("first") for row in made.kept.values())
    assert [row.reason for row in made.set_aside] == ["duplicate_id"] * 7


@pytest.mark.parametrize("value", [None, "", "  "], ids=repr)
def test_a_row_without_an_id_gets_its_file_and_row(
    value: str | None,
    good: list[Row],
    unspoiled: dict[str, Row],
    pool: DecodingPool,
    tmp_path: Path,
) -> None:
    nameless = {**good[0], "id": value}
    made = make(tmp_path, [*good[:2], nameless, *good[2:]], pool)
    assert made.set_aside == []
    row = made.kept.pop("0.parquet#2")
    assert made.kept == unspoiled
    assert row["pcm"] == unspoiled[good[0]["id"]]["pcm"]


def test_rows_without_ids_in_files_of_one_name_are_not_taken_for_duplicates(
    good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        table = pa.Table.from_pylist([{**good[0], "id": None}], ARCHIVE_SCHEMA)
        pq.write_table(table, tmp_path / part / "0.parquet")
    corpus = Corpus("parts", "parquet", str(tmp_path), {"train": "*/*.parquet"})
    made = make_corpus(corpus, tmp_path / "store", pool)
    assert sorted(made.kept) == ["a/0.parquet#0", "b/0.parquet#0"]
    assert made.set_aside == []


def test_a_shard_of_bad_rows_only_is_made_empty(pool: DecodingPool, tmp_path: Path) -> None:
    made = make(tmp_path, [a_row(b"x", id=str(n)) for n in range(20)], pool)
    assert made.kept == {}
    assert [row.row for row in made.set_aside] == list(range(20))


def test_a_shard_that_is_there_is_not_made_again_and_says_the_same(
    good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    made = make(tmp_path, among(good, a_row(b"x")), pool)
    store = Store(str(tmp_path / "store"))
    shard = Shard("train", 0)
    before = store.read_bytes(shard.object_key("speech"))
    assert make_shard(store, shard, OPTIONS, pool) == (made.statistics[0], False)
    # Without its quarantine it is not whole, and is made again: the same bytes.
    store.delete(shard.quarantine_key("speech"))
    assert make_shard(store, shard, OPTIONS, pool) == (made.statistics[0], True)
    assert store.read_bytes(shard.object_key("speech")) == before


@pytest.mark.parametrize(
    ("which", "damage"),
    [
        ("speech", "cut"),
        ("speech", "not parquet"),
        ("quarantine", "cut"),
        ("quarantine", "not parquet"),
        ("quarantine", "flipped"),
    ],
)
def test_a_shard_or_quarantine_that_was_damaged_is_made_again(
    which: str, damage: str, good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    made = make(tmp_path, among(good, a_row(b"x")), pool)
    store = Store(str(tmp_path / "store"))
    shard = Shard("train", 0)
    key = shard.object_key("speech") if which == "speech" else shard.quarantine_key("speech")
    whole = store.read_bytes(key)
    if damage == "flipped":
        flip(tmp_path / "store" / key, "detail")
    else:
        store.write_bytes(key, whole[: len(whole) // 2] if damage == "cut" else b"<html>")
    assert make_shard(store, shard, OPTIONS, pool) == (made.statistics[0], True)
    assert store.read_bytes(key) == whole


def test_a_folder_of_audio_goes_the_same_way(
    good: list[Row], unspoiled: dict[str, Row], pool: DecodingPool, tmp_path: Path
) -> None:
    lines = ["id,file,text"]
    for row in good:
        (tmp_path / f"{row['id']}.ogg").write_bytes(row["audio"]["bytes"])
        lines.append(f'{row["id"]},{row["id"]}.ogg,"{row["text_normalized"]}"')
    lines += [lines[1], "gone,gone.ogg,Hello", "out,../out.ogg,Hello", f"mute,{good[0]['id']}.ogg,"]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    (tmp_path.parent / "out.ogg").write_bytes(good[0]["audio"]["bytes"])
    made = make_corpus(Corpus("mine", "folder", str(tmp_path)), tmp_path / "store", pool)
    assert {key: row["pcm"] for key, row in made.kept.items()} == {
        key: row["pcm"] for key, row in unspoiled.items()
    }
    reasons = {row.id: row.reason for row in made.set_aside}
    assert reasons == {
        good[0]["id"]: "duplicate_id",
        "gone": "missing_audio",
        "out": "missing_audio",
        "mute": "missing_text",
    }


def die_of_some(rows: list[Row], options: SpeechOptions) -> list[SpeechRow | QuarantinedRow]:
    """What the product does, except that DEADLY bytes end the process, as a bug in C would."""
    if any(row["audio"]["bytes"] == DEADLY for row in rows):
        os.kill(os.getpid(), signal.SIGKILL)
    return decode_rows(rows, options)


def test_bytes_that_kill_the_decoder_cost_their_own_row_only(
    good: list[Row], unspoiled: dict[str, Row], tmp_path: Path
) -> None:
    copies = [{**row, "id": f"{copy}-{row['id']}"} for copy in range(4) for row in good]
    deadly = [a_row(DEADLY, id=f"{copy}-deadly") for copy in (1, 3)]
    with DecodingPool(2, OPTIONS, die_of_some) as pool:
        made = make(tmp_path, [*copies, *deadly], pool)
    assert [row.id for row in made.set_aside] == ["1-deadly", "3-deadly"]
    for bad in made.set_aside:
        assert bad.reason == "decode_error"
        assert "kill" in bad.detail
    assert {key: row["pcm"] for key, row in made.kept.items()} == {
        f"{copy}-{key}": row["pcm"] for copy in range(4) for key, row in unspoiled.items()
    }


@pytest.mark.parametrize("column", ["audio", "id", "text_normalized"])
def test_a_missing_column_is_an_error_that_names_file_and_column(
    column: str, good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    table = pa.Table.from_pylist(good, ARCHIVE_SCHEMA).drop_columns([column])
    pq.write_table(table, tmp_path / "part.parquet")
    with pytest.raises(CorpusError, match=rf"part\.parquet has no column {column} "):
        make_corpus(corpus_of(tmp_path), tmp_path / "store", pool)


def test_optional_columns_may_be_missing_and_numbers_may_be_names(
    good: list[Row], unspoiled: dict[str, Row], pool: DecodingPool, tmp_path: Path
) -> None:
    table = pa.Table.from_pylist(
        [
            {
                "audio": row["audio"],
                "id": number,
                "text_normalized": row["text_normalized"],
                "speaker_id": 0,
                "source": 7,
            }
            for number, row in enumerate(good)
        ]
    )
    pq.write_table(table, tmp_path / "0.parquet")
    made = make_corpus(corpus_of(tmp_path), tmp_path / "store", pool)
    assert sorted(made.kept) == [str(number) for number in range(len(good))]
    assert made.kept["0"]["pcm"] == unspoiled[good[0]["id"]]["pcm"]
    assert (made.kept["0"]["speaker_id"], made.kept["0"]["source"]) == ("0", "7")


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", b"id,text\n1,hello\n", b"PAR1" + bytes(500) + b"PAR1"],
    ids=["nothing", "its magic only", "a CSV", "zeros between magics"],
)
def test_a_file_that_is_not_parquet_is_an_error_that_names_it(
    data: bytes, pool: DecodingPool, tmp_path: Path
) -> None:
    (tmp_path / "part.parquet").write_bytes(data)
    with pytest.raises(CorpusError, match=r"part\.parquet is not parquet: .*fetch the file again"):
        make_corpus(corpus_of(tmp_path), tmp_path / "store", pool)


def test_a_parquet_that_was_cut_is_an_error_that_names_it(
    good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    pq.write_table(pa.Table.from_pylist(good, ARCHIVE_SCHEMA), tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "part.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(CorpusError, match=r"part\.parquet is not parquet"):
        make_corpus(corpus_of(tmp_path), tmp_path / "store", pool)


def flip(path: Path, column: str) -> None:
    """Change bytes within the values of a column's first row group."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(
        group.column(n)
        for n in range(group.num_columns)
        if group.column(n).path_in_schema == column
    )
    data = bytearray(path.read_bytes())
    start, quarters = chunk.data_page_offset, 3
    if chunk.dictionary_page_offset:
        start, quarters = chunk.dictionary_page_offset, 1
    # The header of a data page holds copies of values too; a change there is harmless.
    inside = start + quarters * chunk.total_compressed_size // 4
    for at in range(inside, inside + 8):
        data[at] ^= 0xA5
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("column", ["id", "text_normalized", "audio.bytes"])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_a_damaged_page_is_an_error_that_names_the_file(
    column: str, compression: str, good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(
        pa.Table.from_pylist(good, ARCHIVE_SCHEMA),
        path,
        compression=compression,
        use_dictionary=False,
        write_page_checksum=True,
    )
    flip(path, column)
    with pytest.raises(CorpusError, match=r"part\.parquet.* damaged.*fetch the file again"):
        make_corpus(corpus_of(tmp_path), tmp_path / "store", pool)


def test_text_that_is_not_utf_8_is_an_error_that_names_the_file(
    good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    path = tmp_path / "part.parquet"
    rows = [{**row, "text_normalized": f"caf{'e'}-{row['id']}"} for row in good]
    pq.write_table(
        pa.Table.from_pylist(rows, ARCHIVE_SCHEMA), path, compression="none", use_dictionary=False
    )
    data = path.read_bytes()
    path.write_bytes(data.replace(b"cafe-", b"caf\xe9-"))
    with pytest.raises(CorpusError, match=r"part\.parquet is damaged.*utf-8"):
        make_corpus(corpus_of(tmp_path), tmp_path / "store", pool)


def test_audio_that_is_no_struct_of_bytes_is_an_error_that_names_the_layout(
    good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    for audio in (b"bytes", "a path", {"path": "a path"}, {"bytes": "text"}, [0.1, 0.2]):
        rows = [{"id": row["id"], "text_normalized": "said", "audio": audio} for row in good]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "part.parquet")
        with pytest.raises(CorpusError, match=r"part\.parquet: column audio is .*struct"):
            make_corpus(corpus_of(tmp_path), tmp_path / "store", pool)


def test_an_archive_shard_that_was_damaged_is_an_error_that_names_it(
    good: list[Row], pool: DecodingPool, tmp_path: Path
) -> None:
    make(tmp_path, good, pool)
    store = Store(str(tmp_path / "store"))
    shard = Shard("train", 0)
    store.delete(shard.object_key("speech"))
    flip(tmp_path / "store" / shard.object_key("archives"), "audio.bytes")
    with pytest.raises(ShardError, match=r"train\.000\.parquet is damaged: .*delete it"):
        make_shard(store, shard, OPTIONS, pool)
    assert not store.exists(shard.object_key("speech"))


def test_an_archive_shard_that_is_not_there_says_what_to_materialize(
    pool: DecodingPool, tmp_path: Path
) -> None:
    with pytest.raises(ShardError, match="materialize archives of split 'train' first"):
        make_shard(Store(str(tmp_path)), Shard("train", 0), OPTIONS, pool)
