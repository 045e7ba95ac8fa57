"""The embedded corpus as it ships: every file opened, every clip decoded."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

import speech_assets.corpus.embedded
from speech_assets.corpus.embedded.card import FACTS_BEGIN, FACTS_END, place_facts, render_facts
from speech_assets.corpus.embedded.clips import Clip
from speech_assets.corpus.embedded.packages import unpack_packages
from speech_assets.corpus.embedded.storage import (
    STORED_OTHERWISE,
    Storage,
    check_stored,
    encode,
)
from speech_assets.corpus.embedded.transcripts import slug, spoken
from speech_assets.errors import CorpusError
from speech_assets.work.build_embedded_corpus import SCHEMA, choose_dev, deal_out

FOLDER = Path(speech_assets.corpus.embedded.__path__[0])
FILES = sorted(FOLDER.glob("*.parquet"))
MAX_TOTAL_BYTES = 8_000_000
MIN_MINUTES = 15


@dataclass(frozen=True, slots=True)
class Decoded:
    """What decoding one row showed."""

    id: str
    split: str
    duration_s: float
    peak: float
    mean: float
    container: str
    subtype: str
    rate_hz: int
    channels: int


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, dict[str, Any]]]:
    return [(path.name, row) for path in FILES for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def decoded(rows: list[tuple[str, dict[str, Any]]]) -> list[Decoded]:
    return [_decode(name.partition("-")[0], row) for name, row in rows]


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return json.loads((FOLDER / "facts.json").read_text("utf-8"))


def test_the_files_are_two_splits_in_four_files_or_more_of_at_most_8_mb() -> None:
    splits = Counter(path.name.partition("-")[0] for path in FILES)
    assert set(splits) == {"train", "dev"}
    assert len(FILES) >= 4
    assert min(splits.values()) >= 2
    assert sum(path.stat().st_size for path in FILES) <= MAX_TOTAL_BYTES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_has_libritts_r_columns_and_source_and_licence(path: Path) -> None:
    schema = pq.read_schema(path)
    assert schema.equals(SCHEMA)
    assert schema.field("audio").type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    assert {"text_normalized", "text_original", "speaker_id", "path", "chapter_id", "id"} < set(
        schema.names
    )
    assert {"source", "licence"} < set(schema.names)
    assert schema.metadata is None


def test_every_row_has_its_texts_source_and_licence(rows: list[tuple[str, dict[str, Any]]]) -> None:
    for _, row in rows:
        assert all(row[name].strip() for name in SCHEMA.names if name != "audio"), row["id"]
        assert row["audio"]["bytes"], row["id"]
        assert row["path"].endswith(row["audio"]["path"])
        assert row["audio"]["path"].startswith(row["id"])


def test_what_is_said_is_written_in_words(rows: list[tuple[str, dict[str, Any]]]) -> None:
    for _, row in rows:
        said = row["text_normalized"]
        assert not re.search(r"[0-9#*$\[\]<>()]|\.\.|  ", said), (row["id"], said)
        assert re.search(r"[A-Za-z]", said), row["id"]


def test_ids_are_unique_and_sorted_from_file_to_file(
    rows: list[tuple[str, dict[str, Any]]],
) -> None:
    assert len({row["id"] for _, row in rows}) == len(rows)
    for split in ("train", "dev"):
        ids = [row["id"] for name, row in rows if name.startswith(split)]
        assert ids == sorted(ids)


def test_there_are_15_minutes_of_speech_from_under_1_s_to_over_10_s_in_both_splits(
    decoded: list[Decoded],
) -> None:
    assert sum(clip.duration_s for clip in decoded) >= MIN_MINUTES * 60
    for split in ("train", "dev"):
        durations = [clip.duration_s for clip in decoded if clip.split == split]
        assert min(durations) < 1 < 10 < max(durations)


def test_every_clip_has_sound_without_offset_or_clipping(decoded: list[Decoded]) -> None:
    for clip in decoded:
        assert 0.1 < clip.peak <= 1.0, clip
        assert abs(clip.mean) < 0.01, clip  # The novel was recorded with an offset of 0.0075.


def test_dev_has_about_12_percent_of_the_clips_and_some_of_every_source(
    rows: list[tuple[str, dict[str, Any]]],
) -> None:
    sources = {
        split: {row["source"] for name, row in rows if name.startswith(split)}
        for split in ("train", "dev")
    }
    assert sources["dev"] == sources["train"]
    share = sum(name.startswith("dev") for name, _ in rows) / len(rows)
    assert 0.10 <= share <= 0.14


def test_no_text_of_dev_is_heard_in_train(rows: list[tuple[str, dict[str, Any]]]) -> None:
    texts = {
        split: {slug(row["text_normalized"]) for name, row in rows if name.startswith(split)}
        for split in ("train", "dev")
    }
    assert not texts["dev"] & texts["train"]


def test_the_rows_stored_otherwise_are_what_their_table_says(decoded: list[Decoded]) -> None:
    by_id = {clip.id: clip for clip in decoded}
    for name, storage in STORED_OTHERWISE.items():
        clip = by_id[name]
        assert (clip.rate_hz, clip.channels) == (storage.rate_hz, storage.channels), name
        container, subtype = {
            "opus": ("OGG", "OPUS"),
            "vorbis": ("OGG", "VORBIS"),
            "mp3": ("MP3", "MPEG_LAYER_III"),
        }.get(storage.container, (storage.container.upper(), storage.subtype))
        assert (clip.container, clip.subtype) == (container, subtype), name
    kinds = {(clip.container, clip.subtype) for clip in decoded}
    assert {container for container, _ in kinds} == {"OGG", "FLAC", "WAV", "MP3"}
    assert len(kinds) >= 8


def test_the_facts_agree_with_the_files(
    facts: dict[str, Any], rows: list[tuple[str, dict[str, Any]]], decoded: list[Decoded]
) -> None:
    assert {file["name"]: (file["rows"], file["bytes"]) for file in facts["files"]} == {
        path.name: (pq.read_metadata(path).num_rows, path.stat().st_size) for path in FILES
    }
    assert facts["total_bytes"] == sum(path.stat().st_size for path in FILES)
    for name, group in [("", facts["all"]), *facts["splits"].items()]:
        clips = [clip for clip in decoded if clip.split.startswith(name)]
        texts = [row["text_normalized"] for file, row in rows if file.startswith(name)]
        assert group["clips"] == len(clips)
        assert group["minutes"] == round(sum(clip.duration_s for clip in clips) / 60, 2)
        assert group["shortest_s"] == round(min(clip.duration_s for clip in clips), 2)
        assert group["longest_s"] == round(max(clip.duration_s for clip in clips), 2)
        assert group["words"] == sum(len(text.split()) for text in texts)
    for step in facts["durations"]:
        for split in facts["splits"]:
            assert step[split] == sum(
                clip.split == split
                and step["from_s"] <= clip.duration_s < (step["to_s"] or float("inf"))
                for clip in decoded
            )
    assert {(s["source"], s["licence"]): s["clips"] for s in facts["sources"]} == Counter(
        (row["source"], row["licence"]) for _, row in rows
    )
    assert sum(row["clips"] for row in facts["formats"]) == len(rows)
    assert {row["id"] for row in facts["stored_otherwise"]} == set(STORED_OTHERWISE)


def test_the_card_shows_the_facts_and_every_sha256_in_it_is_true(facts: dict[str, Any]) -> None:
    card = (FOLDER / "CARD.md").read_text("utf-8")
    assert place_facts(card, render_facts(facts)) == card
    shown = dict(re.findall(r"^\| (\S+\.parquet) \|.* `([0-9a-f]{64})` \|$", card, re.MULTILINE))
    assert shown == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FILES}
    for needed in (
        "Allison Smith",
        "creativecommons.org/licenses/by-sa/3.0/",
        "not representative",
    ):
        assert needed in card


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Press 1 for", "Press one for"),
        ("dial 500 to attempt", "dial five zero zero to attempt"),
        ("a 28.8 kilobit modem.", "a twenty eight point eight kilobit modem."),
        (
            "press * to toggle pause, press # to exit",
            "press star to toggle pause, press pound to exit",
        ),
        ("... for ...", "for"),
        ('IAX (note: does not say "2")', "IAX"),
        ("H.323", "H three two three"),
        ("A.M.", "A M"),
        ("Try again.  Please.", "Try again. Please."),
    ],
)
def test_a_transcript_becomes_what_is_said(written: str, said: str) -> None:
    assert spoken(written) == said


def test_a_transcript_that_cannot_be_said_is_named_with_the_remedy() -> None:
    with pytest.raises(CorpusError, match=r"'costs \$' becomes .* add what is said to SPOKEN"):
        spoken("costs $")


def test_a_missing_package_is_named_with_its_place_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"asterisk-core-sounds-en-g722_1.*deb is not in .*fetch"):
        unpack_packages(tmp_path, tmp_path / "root")


def test_a_changed_package_is_named_with_both_hashes(tmp_path: Path) -> None:
    (tmp_path / "asterisk-core-sounds-en-g722_1.6.1-1_all.deb").write_bytes(b"changed")
    with pytest.raises(CorpusError, match=r"has sha256 [0-9a-f]{64}, must be 38c5261820b4"):
        unpack_packages(tmp_path, tmp_path / "root")


@pytest.mark.parametrize(
    "storage", sorted(set(STORED_OTHERWISE.values()), key=str), ids=lambda storage: storage.label
)
def test_the_same_samples_are_stored_as_the_same_bytes(storage: Storage) -> None:
    pcm = _tone(storage.rate_hz, storage.channels)
    data = encode(pcm, storage)
    assert encode(pcm, storage) == data
    check_stored(data, pcm, storage, "tone")


def test_a_format_that_ruins_a_clip_is_refused() -> None:
    storage = Storage("wav", 16_000, subtype="PCM_16")
    pcm = _tone(16_000, 1)
    with pytest.raises(CorpusError, match=r"tone as wav.* choose another format"):
        check_stored(encode(pcm[:-1], storage), pcm, storage, "tone")
    with pytest.raises(CorpusError, match=r"-6\.0 dB of SNR"):
        check_stored(encode(-pcm, storage), pcm, storage, "tone")


def test_dev_takes_its_share_of_every_source_and_keeps_equal_texts_together() -> None:
    clips = [_clip(f"a-{n:03d}", "a", f"text {n // 2}") for n in range(100)]
    clips += [_clip(f"b-{n}", "b", f"line {n}") for n in range(3)]
    dev = choose_dev(clips)
    assert dev == choose_dev(clips)
    assert sum(name.startswith("a") for name in dev) == 12
    assert sum(name.startswith("b") for name in dev) == 1
    assert all(len(dev & {f"a-{n:03d}", f"a-{n + 1:03d}"}) != 1 for n in range(0, 100, 2))


def test_clips_are_dealt_out_in_order_in_parts_of_equal_length() -> None:
    clips = [_clip(f"a-{n:03d}", "a", "text", samples=16_000 * (1 + n % 3)) for n in range(60)]
    parts = deal_out(clips, 4)
    assert [clip for part in parts for clip in part] == clips
    lengths = [sum(clip.duration_s for clip in part) for part in parts]
    assert max(lengths) - min(lengths) <= 3


def test_a_card_without_its_markers_is_refused() -> None:
    assert place_facts(f"a\n{FACTS_BEGIN}\nold\n{FACTS_END}\nb", "new") == (
        f"a\n{FACTS_BEGIN}\nnew\n{FACTS_END}\nb"
    )
    with pytest.raises(CorpusError, match="restore them"):
        place_facts("no markers", "new")


def _decode(split: str, row: dict[str, Any]) -> Decoded:
    with soundfile.SoundFile(io.BytesIO(row["audio"]["bytes"])) as file:
        samples = file.read(dtype="float64", always_2d=True)
        assert len(samples) == file.frames, row["id"]
        return Decoded(
            id=row["id"],
            split=split,
            duration_s=len(samples) / file.samplerate,
            peak=float(np.abs(samples).max()),
            mean=float(samples.mean()),
            container=file.format,
            subtype=file.subtype,
            rate_hz=file.samplerate,
            channels=file.channels,
        )


def _tone(rate_hz: int, channels: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Half a second of 440 Hz with a little noise, int16 of shape (samples, channels)."""
    time_s = np.arange(rate_hz // 2) / rate_hz
    noise = np.random.default_rng(7).normal(0, 30, (len(time_s), channels))
    return np.rint(8_000 * np.sin(2 * np.pi * 440 * time_s)[:, None] + noise).astype(np.int16)


def _clip(name: str, source: str, text: str, samples: int = 16_000) -> Clip:
    pcm = np.zeros((samples, 1), np.int16)
    return Clip(name, "speaker", "chapter", text, text, source, "licence", 16_000, pcm)
