"""What arrived, decoded: which samples could be played after which piece."""

from __future__ import annotations

import gzip
import io
import struct
from itertools import accumulate

import av
import numpy as np
import pytest
from bench.speaking_server import RATE_HZ, compressed, speech
from hypothesis import given, settings
from hypothesis import strategies as st

from server.wav import wav_header
from speech_assets.bench.audio import decode
from speech_assets.bench.stream_end import ogg_page_ends

PCM = speech(RATE_HZ)
# Padding that encoders add or decoders cannot take off a stream.
PADDING_S = 0.13


WHOLE = {kind: compressed(kind, 2 * RATE_HZ) for kind in ("mp3", "opus", "flac", "aac")}


def with_rate(rate_hz: int) -> bytes:
    header = wav_header()
    return header[:24] + struct.pack("<I", rate_hz) + header[28:]


def with_size(size: int) -> bytes:
    return wav_header()[:40] + struct.pack("<I", size)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces that end at `places`; empty ones are left out, as none ever arrives."""
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [piece for piece in pieces if piece]


@settings(deadline=None)
@given(st.lists(st.integers(0, 2 * RATE_HZ), max_size=30))
def test_pcm_is_the_same_however_it_is_cut(places: list[int]) -> None:
    pieces = cut(PCM, places)
    audio = decode("pcm", pieces)
    assert audio.samples.tobytes() == PCM
    there = [length // 2 for length in accumulate(map(len, pieces))]
    assert list(accumulate(audio.playable)) == there
    assert audio.problem is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 2 * RATE_HZ), max_size=30))
def test_wav_is_the_same_however_it_is_cut(places: list[int]) -> None:
    pieces = cut(wav_header() + PCM, places)
    audio = decode("wav", pieces)
    assert audio.samples.tobytes() == PCM
    there = [max(0, length - 44) // 2 for length in accumulate(map(len, pieces))]
    assert list(accumulate(audio.playable)) == there
    assert audio.problem is None


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "aac"])
def test_compressed_audio_can_be_played_as_its_bytes_come(kind: str) -> None:
    whole = compressed(kind, 2 * RATE_HZ)
    size = len(whole) // 10 + 1
    audio = decode(kind, cut(whole, list(range(size, len(whole), size))))
    assert audio.problem is None
    assert audio.seconds == pytest.approx(2.0, abs=PADDING_S)
    # A tone of 220 Hz, whatever the codec has done to it.
    middle = audio.samples[len(audio.samples) // 4 : len(audio.samples) // 2].astype(float)
    peak = np.argmax(np.abs(np.fft.rfft(middle))) * audio.rate_hz / len(middle)
    assert peak == pytest.approx(220, abs=2)
    # FLAC begins with 8 KB of padding; then, and in the others, each tenth of the bytes has about
    # a tenth of the audio.
    assert sum(audio.playable) == len(audio.samples)
    later = [count / audio.rate_hz for count in audio.playable[-4:-1]]
    assert all(0.1 < seconds < 0.4 for seconds in later)


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "aac"])
def test_a_prefix_of_a_compressed_stream_plays_what_it_was_said_to_play(kind: str) -> None:
    whole = compressed(kind, 2 * RATE_HZ)
    half = len(whole) // 2
    told = decode(kind, [whole[:half], whole[half:]]).playable[0]
    # What a decoder makes of these bytes alone; it may guess the end of one frame more.
    alone = decode(kind, [whole[:half]])
    frame_s = 0.1
    assert alone.seconds == pytest.approx(told / alone.rate_hz, abs=frame_s)


def test_mulaw_is_expanded_as_g711_says() -> None:
    audio = decode("mulaw", [bytes([0x00, 0x80, 0xFF, 0x7F, 0x10])])
    assert audio.samples.tolist() == [-32124, 32124, 0, 0, -15996]
    assert audio.rate_hz == 8_000


def test_a_wav_header_says_its_rate_and_channels() -> None:
    stereo = np.repeat(np.frombuffer(PCM, "<i2"), 2).tobytes()
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 2, 48_000, 192_000, 4, 16),
        *(b"data", 0xFFFFFFFF),
    )
    audio = decode("wav", cut(header + stereo, [3, 47, 1_001]))
    assert audio.rate_hz == 48_000
    assert audio.samples.tobytes() == PCM


@pytest.mark.parametrize(
    ("kind", "body", "outcome", "words"),
    [
        ("pcm", wav_header() + PCM, "garbage", "wav came"),
        ("pcm", compressed("opus", RATE_HZ), "garbage", "ogg came"),
        ("pcm", b"Internal Server Error", "garbage", "words came"),
        ("pcm", np.frombuffer(PCM, "<i2").byteswap().tobytes(), "garbage", "white noise"),
        ("pcm", PCM[:-1], "truncated", "not whole"),
        ("wav", PCM, "garbage", "begins"),
        ("wav", wav_header(len(PCM)) + PCM[:-100], "truncated", "says 48000 bytes"),
        ("wav", wav_header()[:40], "truncated", "within the WAV header"),
        ("wav", wav_header()[:20] + b"\x03\x00" + wav_header()[22:] + PCM, "garbage", "16-bit PCM"),
        ("wav", (wav_header() + PCM) * 3, "header_per_chunk", "3 WAV headers"),
        ("pcm", "<p>größer</p>".encode() * 99, "garbage", "words came"),
        ("pcm", "<p>größer geht es nicht</p>".encode("latin-1") * 99, "garbage", "words came"),
        ("pcm", "日本語のページ".encode() * 99 + b"\xe6", "garbage", "words came"),
        ("pcm", gzip.compress(PCM), "garbage", "gzip came"),
        ("mulaw", b"Internal Server Error", "garbage", "words came"),
        ("mulaw", wav_header() + PCM, "garbage", "wav came"),
        ("wav", wav_header(100) + PCM, "garbage", "says 100 bytes of audio, 48000 came"),
        ("wav", wav_header() + PCM[:-1], "truncated", "not whole samples"),
        ("wav", with_rate(0) + PCM, "garbage", "0 Hz"),
        ("wav", with_rate(20) + PCM, "garbage", "20 Hz"),
        ("wav", with_rate(2**31) + PCM, "garbage", "Hz is not"),
        ("wav", with_size(0x7000_0000) + PCM, "truncated", "says 1879048192 bytes"),
        ("mp3", PCM[:4_000], "garbage", "mp3"),
        ("opus", compressed("flac", RATE_HZ), "garbage", "opus"),
        ("flac", b"fLaC", "garbage", "flac"),
    ],
)
def test_what_is_not_the_audio_asked_for_is_named(
    kind: str, body: bytes, outcome: str, words: str
) -> None:
    audio = decode(kind, cut(body, [1, 30, 5_000]))
    assert audio.problem is not None
    assert audio.problem[0] == outcome
    assert words in audio.problem[1]


@pytest.mark.parametrize("size", [0, 0x7FFF_0000, 0x7FFF_F000, 0x7FFF_FFFF, 2**32 - 37, 2**32 - 1])
def test_a_size_that_nobody_can_know_while_it_streams_is_none(size: int) -> None:
    audio = decode("wav", cut(with_size(size) + PCM, [50, 999]))
    assert audio.problem is None
    assert audio.samples.tobytes() == PCM


def test_what_follows_the_samples_of_a_wav_is_no_audio() -> None:
    more = b"LIST" + struct.pack("<I", 4_000) + b"INFO" + bytes(3_996)
    body = wav_header(len(PCM)) + PCM + more
    audio = decode("wav", cut(body, [50, 40_000, 48_050]))
    assert audio.problem is None
    assert audio.samples.tobytes() == PCM
    assert sum(audio.playable) == len(PCM) // 2


@settings(deadline=None, max_examples=60)
@given(kind=st.sampled_from(["mp3", "opus", "flac", "aac"]), share=st.floats(0.3, 1))
def test_a_compressed_stream_that_is_cut_anywhere_within_its_frames_is_truncated(
    kind: str, share: float
) -> None:
    whole = WHOLE[kind]
    at = int(len(whole) * share)
    ends = frame_ends(kind, whole)
    audio = decode(kind, [whole[:at]])
    if kind != "opus" and at in ends:
        return  # What ends between frames is whole, as far as these formats can say.
    if not len(audio.samples):
        assert audio.problem
        return
    expected = None if at == len(whole) else "truncated"
    assert (audio.problem and audio.problem[0]) == expected, audio.problem


def test_ogg_without_its_last_page_is_truncated() -> None:
    ends = ogg_page_ends(WHOLE["opus"])
    audio = decode("opus", [WHOLE["opus"][: ends[-2]]])
    assert audio.problem == ("truncated", "the opus stream has no last page: its end was not said")


def test_flac_with_fewer_samples_than_its_header_says_is_truncated() -> None:
    flac = WHOLE["flac"]
    (total,) = struct.unpack_from(">Q", flac, 18)
    told = flac[:18] + struct.pack(">Q", total >> 36 << 36 | 3 * RATE_HZ) + flac[26:]
    audio = decode("flac", [told])
    assert audio.problem == (
        "truncated",
        "the flac stream has 48000 samples, and its header says 72000",
    )


def test_tags_around_mp3_are_neither_frames_nor_cuts() -> None:
    title = b"TIT2" + struct.pack(">I", 4) + b"\0\0\x03\xff\xfe\xfd"
    tag = b"ID3\x03\0\0" + bytes([0, 0, 0, len(title)]) + title
    old = b"TAG" + bytes(125)
    assert decode("mp3", [tag + WHOLE["mp3"] + old]).problem is None


def test_a_title_of_any_bytes_does_not_end_the_decoder() -> None:
    comment = b"TITLE=\xff\xfe\xfd"
    block = struct.pack("<I3sII", 3, b"abc", 1, len(comment)) + comment
    flac = WHOLE["flac"]
    # After STREAMINFO.
    head = b"\x04" + len(block).to_bytes(3, "big") + block
    assert decode("flac", [flac[:42] + head + flac[42:]]).problem is None


def frame_ends(kind: str, whole: bytes) -> set[int]:
    """Where its packets end."""
    with av.open(io.BytesIO(whole), format={"mp3": "mp3", "aac": "aac"}.get(kind)) as container:
        packets = [packet for packet in container.demux() if packet.size]
    return {(packet.pos or 0) + packet.size for packet in packets}


def test_a_wav_with_the_letters_riff_in_its_samples_has_one_header() -> None:
    body = wav_header() + PCM[:1_000] + b"RIFF" + PCM[1_000:]
    assert decode("wav", [body]).problem is None


def test_a_whole_wav_with_true_sizes_is_fine() -> None:
    assert decode("wav", [wav_header(len(PCM)) + PCM]).problem is None
