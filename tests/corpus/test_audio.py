"""Audio of every kind to mono 24 kHz, and the reason when bytes are not a clip."""

from __future__ import annotations

import io
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
import soxr

from speech_assets.corpus.audio import RATES_HZ, decode_clip, from_pcm16, to_pcm16
from speech_assets.corpus.quarantine import AudioError
from tests.corpus.encoded import RATE_HZ, encoded, likeness, written

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

STATED_LENGTHS = (
    "WAV",
    "WAVEX",
    "RF64",
    "W64",
    "AIFF",
    "AU",
    "CAF",
    "NIST",
    "FLAC",
    "OGG",
    "MP3",
    "SVX",
)
MIB = 1 << 20


@pytest.fixture(scope="module")
def voice(embedded_rows: list[dict[str, Any]]) -> NDArray[np.float32]:
    """A real clip of 2.5 to 4 s at 24 kHz."""
    clips = (decode_clip(row["audio"]["bytes"]).samples for row in embedded_rows)
    return next(clip for clip in clips if 2.5 * RATE_HZ < len(clip) < 4 * RATE_HZ)


def refusal(data: bytes, path: str = "", **settings: Any) -> AudioError:
    with pytest.raises(AudioError) as caught:
        decode_clip(data, path=path, **settings)
    return caught.value


@pytest.mark.parametrize(
    ("form", "subtype", "least"),
    [
        ("WAV", "PCM_U8", 0.98),
        ("WAV", "PCM_16", 0.999),
        ("WAV", "PCM_24", 0.999),
        ("WAV", "PCM_32", 0.999),
        ("WAV", "FLOAT", 0.999),
        ("WAV", "DOUBLE", 0.999),
        ("WAV", "ULAW", 0.99),
        ("WAV", "IMA_ADPCM", 0.99),
        ("WAVEX", "PCM_24", 0.999),
        ("RF64", "PCM_16", 0.999),
        ("W64", "FLOAT", 0.999),
        ("AIFF", "PCM_16", 0.999),
        ("AIFF", "PCM_24", 0.999),
        ("AU", "PCM_16", 0.999),
        ("CAF", "PCM_16", 0.999),
        ("NIST", "PCM_16", 0.999),
        ("FLAC", "PCM_16", 0.999),
        ("FLAC", "PCM_24", 0.999),
        ("OGG", "VORBIS", 0.98),
        ("OGG", "OPUS", 0.98),
        ("MP3", "MPEG_LAYER_III", 0.98),
    ],
)
def test_what_libsndfile_writes_is_read_as_it_was(
    voice: NDArray[np.float32], form: str, subtype: str, least: float
) -> None:
    clip = decode_clip(written(voice, form=form, subtype=subtype))
    assert (clip.source_rate_hz, clip.source_channels, clip.gain) == (RATE_HZ, 1, 1.0)
    assert abs(len(clip.samples) - len(voice)) <= (1_100 if subtype == "IMA_ADPCM" else 0)
    assert clip.samples.dtype == np.float32
    assert likeness(clip.samples, voice) > least


@pytest.mark.parametrize(
    ("container", "codec", "rate_hz", "path"),
    [
        ("ipod", "aac", RATE_HZ, "clip.m4a"),
        ("mp4", "alac", RATE_HZ, "clip.mp4"),
        ("adts", "aac", RATE_HZ, "clip.aac"),
        ("webm", "libopus", 48_000, "clip.webm"),
        ("matroska", "flac", RATE_HZ, "clip.mka"),
        ("mp3", "libmp3lame", RATE_HZ, "clip.mp3"),
        ("ac3", "ac3", 48_000, "clip.ac3"),
        ("g722", "g722", 16_000, "CLIP.G722"),
    ],
)
def test_what_ffmpeg_writes_is_read_as_it_was(
    voice: NDArray[np.float32], container: str, codec: str, rate_hz: int, path: str
) -> None:
    clip = decode_clip(encoded(voice, container, codec, rate_hz), path=path)
    assert (clip.source_rate_hz, clip.source_channels) == (rate_hz, 1)
    # Some encoders pad the clip to whole frames at both ends.
    assert -0.001 < len(clip.samples) / RATE_HZ - len(voice) / RATE_HZ < 0.1
    assert likeness(clip.samples, voice) > 0.97


@pytest.mark.parametrize(
    ("container", "codec", "options"),
    [
        ("flac", "flac", {}),
        ("wav", "pcm_s16le", {}),
        ("au", "pcm_s16be", {}),
        ("caf", "pcm_s16be", {}),
        ("mp4", "aac", {"movflags": "frag_keyframe+empty_moov"}),
        ("webm", "libopus", {"live": "1"}),
        ("mp3", "libmp3lame", {"write_xing": "0"}),
    ],
)
def test_a_streamed_file_that_does_not_say_how_long_it_is_is_read_whole(
    voice: NDArray[np.float32], container: str, codec: str, options: dict[str, str]
) -> None:
    rate_hz = 48_000 if codec == "libopus" else RATE_HZ
    data = encoded(voice, container, codec, rate_hz, streamed=True, **options)
    clip = decode_clip(data)
    assert -0.001 < len(clip.samples) / RATE_HZ - len(voice) / RATE_HZ < 0.1
    assert likeness(clip.samples, voice) > 0.97


def test_a_streamed_wav_with_zero_sizes_is_read_to_its_end(voice: NDArray[np.float32]) -> None:
    data = bytearray(written(voice))
    at = data.index(b"data") + 4
    data[4:8] = data[at : at + 4] = bytes(4)
    assert len(decode_clip(bytes(data)).samples) == len(voice)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_any_rate_becomes_24_khz_with_the_same_content(
    voice: NDArray[np.float32], rate_hz: int
) -> None:
    source = soxr.resample(voice, RATE_HZ, rate_hz, quality="VHQ")
    clip = decode_clip(written(source, rate_hz, subtype="FLOAT"))
    assert clip.source_rate_hz == rate_hz
    assert abs(len(clip.samples) - len(voice)) <= 4
    # What 8 kHz cannot hold is gone; nothing else is.
    held = soxr.resample(source, rate_hz, RATE_HZ, quality="VHQ")
    assert likeness(clip.samples, held) > 0.9999
    assert likeness(clip.samples, voice) > (0.9 if rate_hz < 16_000 else 0.99)


def test_stereo_becomes_the_mean_of_its_channels(voice: NDArray[np.float32]) -> None:
    stereo = soxr.resample(np.stack([voice, 0.5 * voice], axis=1), RATE_HZ, 44_100)
    clip = decode_clip(written(stereo, 44_100))
    assert (clip.source_rate_hz, clip.source_channels) == (44_100, 2)
    assert abs(len(clip.samples) - len(voice)) <= 4
    np.testing.assert_allclose(clip.samples[: len(voice)], 0.75 * voice, atol=0.01)


def test_floats_over_full_scale_are_brought_back_without_clipping(
    voice: NDArray[np.float32],
) -> None:
    loud = voice / np.abs(voice).max() * 3.0
    clip = decode_clip(written(loud, subtype="FLOAT"))
    assert clip.gain == pytest.approx(1 / 3, rel=1e-6)
    assert np.abs(clip.samples).max() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(clip.samples, loud / 3, atol=1e-6)


@pytest.mark.parametrize("rate_hz", [RATE_HZ, 48_000])
def test_absurdly_loud_floats_stay_finite(voice: NDArray[np.float32], rate_hz: int) -> None:
    loud = np.stack([voice, voice], axis=1) / np.abs(voice).max() * np.float32(3.4e38)
    clip = decode_clip(written(loud, rate_hz, subtype="FLOAT"))
    assert np.isfinite(clip.samples).all()
    assert 0.99 < np.abs(clip.samples).max() <= 1.0
    assert clip.gain > 0.0


def test_a_peak_between_samples_is_brought_back_too() -> None:
    # Square waves at full scale overshoot once they are band-limited.
    square = np.sign(np.sin(2 * np.pi * 443 * np.arange(44_100) / 44_100)).astype(np.float32)
    clip = decode_clip(written(square, 44_100, subtype="FLOAT"))
    assert clip.gain < 1.0
    assert np.abs(clip.samples).max() <= 1.0 + 1e-6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_named_by_position(
    voice: NDArray[np.float32], value: float
) -> None:
    spoiled = np.stack([voice, voice], axis=1)
    spoiled[50_000, 1] = value
    error = refusal(written(spoiled, subtype="FLOAT"))
    assert error.reason == "non_finite"
    assert "sample 50000" in error.detail


@pytest.mark.parametrize("form", STATED_LENGTHS)
@pytest.mark.parametrize("kept", [0.5, 0.95])
def test_a_file_that_was_cut_is_refused_whatever_its_format(
    voice: NDArray[np.float32], form: str, kept: float
) -> None:
    data = written(voice, form=form)
    error = refusal(data[: int(kept * len(data))])
    assert error.reason == "truncated", error.detail


@pytest.mark.parametrize(
    ("container", "codec", "rate_hz"),
    [
        ("ipod", "aac", RATE_HZ),
        ("adts", "aac", RATE_HZ),
        ("webm", "libopus", 48_000),
        ("ogg", "libopus", 48_000),
    ],
)
@pytest.mark.parametrize("kept", [0.5, 0.8])
def test_a_container_that_was_cut_is_refused(
    voice: NDArray[np.float32], container: str, codec: str, rate_hz: int, kept: float
) -> None:
    data = encoded(voice, container, codec, rate_hz)
    error = refusal(data[: int(kept * len(data))])
    assert error.reason == "truncated", error.detail


def test_a_big_endian_wav_that_was_cut_is_refused(voice: NDArray[np.float32]) -> None:
    file = io.BytesIO()
    soundfile.write(file, voice, RATE_HZ, format="WAV", endian="BIG")
    data = file.getvalue()
    assert data[:4] == b"RIFX"
    assert len(decode_clip(data).samples) == len(voice)
    assert refusal(data[: len(data) // 2]).reason == "truncated"


@pytest.mark.parametrize(
    "form", ["WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "NIST", "FLAC"]
)
def test_a_header_without_samples_is_empty(form: str) -> None:
    assert refusal(written(np.zeros(0, np.float32), form=form)).reason == "empty"


@pytest.mark.parametrize("size", [1, 4, 11, 12, 20, 43])
@pytest.mark.parametrize("form", ["WAV", "AIFF", "CAF", "W64", "AU", "OGG", "FLAC", "MP3"])
def test_a_piece_of_a_header_is_refused(voice: NDArray[np.float32], form: str, size: int) -> None:
    assert refusal(written(voice, form=form)[:size]).reason in ("truncated", "decode_error")


def test_no_bytes_are_empty() -> None:
    assert refusal(b"").reason == "empty"


@pytest.mark.parametrize(("samples", "kept"), [(480, False), (2_399, False), (2_400, True)])
def test_a_clip_under_a_tenth_of_a_second_is_too_short(samples: int, kept: bool) -> None:
    data = written(np.full(samples, 0.1, np.float32))
    if kept:
        assert len(decode_clip(data).samples) == samples
    else:
        error = refusal(data)
        assert error.reason == "too_short"
        assert f"{samples / RATE_HZ:.3f} s" in error.detail


def test_damage_within_a_flac_is_a_decode_error_and_not_a_cut(voice: NDArray[np.float32]) -> None:
    data = bytearray(written(voice, form="FLAC"))
    middle = len(data) // 2
    data[middle : middle + 3_000] = bytes(3_000)
    error = refusal(bytes(data))
    assert error.reason == "decode_error"
    assert f"of {len(voice)} samples" in error.detail


def test_an_unknown_codec_in_a_known_container_is_a_decode_error(
    voice: NDArray[np.float32],
) -> None:
    data = bytearray(written(voice))
    data[20:22] = struct.pack("<H", 0x7777)
    error = refusal(bytes(data))
    assert error.reason == "decode_error"
    assert "no decoder" in error.detail


def test_metadata_that_is_not_utf_8_does_not_cost_the_clip(voice: NDArray[np.float32]) -> None:
    data = encoded(voice, "flac", "flac", streamed=True)
    vendor = data.index(b"Lavf")
    clip = decode_clip(data[:vendor] + b"\xff\xfe\xfd\x80" + data[vendor + 4 :])
    assert len(clip.samples) == len(voice)


def test_a_rate_that_no_speech_has_is_a_decode_error(voice: NDArray[np.float32]) -> None:
    for rate_hz in (RATES_HZ[0] - 1, RATES_HZ[1] + 1):
        error = refusal(written(voice, rate_hz), max_clip_s=600.0)
        assert error.reason == "decode_error"
        assert str(rate_hz) in error.detail


def test_details_are_the_same_in_every_run() -> None:
    noise = np.random.default_rng(1).bytes(4_000)
    first, second = refusal(noise), refusal(bytes(bytearray(noise)))
    assert first.detail == second.detail
    assert "0x" not in first.detail


@pytest.mark.parametrize(
    "playlist",
    [
        "ffconcat version 1.0\nfile {name}\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:9,\n{name}\n#EXT-X-ENDLIST\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    ],
)
def test_bytes_that_name_another_file_or_a_socket_open_neither(
    voice: NDArray[np.float32], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playlist: str
) -> None:
    (tmp_path / "secret.wav").write_bytes(written(voice))
    monkeypatch.chdir(tmp_path)
    assert refusal(playlist.format(name="secret.wav").encode()).reason == "decode_error"


@pytest.fixture(scope="module")
def hours(voice: NDArray[np.float32]) -> dict[str, bytes]:
    """An hour, speech and then silence, in a few kilobytes or megabytes of each format."""
    minute = np.zeros(60 * 8_000, np.int16)
    speech = to_pcm16(soxr.resample(voice, RATE_HZ, 8_000))
    minute[: len(speech)] = speech
    frames = encoded(voice, "mp3", "libmp3lame", streamed=True, write_xing="0")
    frames = frames[10 + frames[9] :]  # Without the ID3 tag; its size fits one byte.
    opus = encoded(np.zeros(70 * RATE_HZ, np.float32), "webm", "libopus", 48_000)
    return {
        "flac": written(np.tile(minute, 60), 8_000, "FLAC"),
        "mp3 without a length": frames * (3_600 * RATE_HZ // len(voice)),
        "opus of 70 s": opus,
    }


@pytest.mark.parametrize("form", ["flac", "mp3 without a length", "opus of 70 s"])
def test_an_hour_is_refused_without_decoding_it(hours: dict[str, bytes], form: str) -> None:
    data = hours[form]
    tracemalloc.start()
    error = refusal(data, path="hour")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.reason == "too_long"
    assert "60 s" in error.detail
    assert peak < 16 * MIB  # Decoded, an hour is 115 MB and more; a minute of 24 kHz floats 5.8 MB.


def test_the_longest_clip_is_a_setting(voice: NDArray[np.float32]) -> None:
    data = written(voice, form="FLAC")
    assert len(decode_clip(data, max_clip_s=len(voice) / RATE_HZ).samples) == len(voice)
    assert refusal(data, max_clip_s=2.0).reason == "too_long"


def test_pcm_of_floats_and_back_is_within_half_a_step(voice: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(from_pcm16(to_pcm16(voice)), voice, atol=0.5 / 32768 + 1e-7)
    assert to_pcm16(np.array([-2, -1, 1, 2], np.float32)).tolist() == [-32768, -32768, 32767, 32767]


def test_four_hundred_damaged_clips_never_raise_anything_but_a_reason(
    voice: NDArray[np.float32],
) -> None:
    voice = voice[: RATE_HZ // 2]
    whole = [
        *(
            written(voice, form=form)
            for form in ("WAV", "AIFF", "CAF", "W64", "FLAC", "OGG", "MP3")
        ),
        encoded(voice, "ipod", "aac"),
        encoded(voice, "mp4", "alac"),
        encoded(voice, "webm", "libopus", 48_000),
        encoded(voice, "adts", "aac"),
    ]
    random = np.random.default_rng(7)
    verdicts = {"kept": 0, "refused": 0}
    for turn in range(400):
        data = bytearray(whole[turn % len(whole)])
        # Half of the faults are in the header, where the lies are.
        reach = 200 if turn % 2 else len(data)
        for at in random.integers(0, min(reach, len(data)), int(random.integers(1, 12))):
            data[at] = random.choice([0, 127, 128, 255, int(random.integers(256))])
        try:
            clip = decode_clip(bytes(data))
        except AudioError:
            verdicts["refused"] += 1
        else:
            assert np.isfinite(clip.samples).all()
            verdicts["kept"] += 1
    assert min(verdicts.values()) > 40, verdicts
