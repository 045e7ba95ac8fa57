"""Formats as streams and files of real speech, decoded again by FFmpeg."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
import soundfile
import soxr
from decoded import CODEC_DELAY, RATE_HZ, decode, snr_db

from server.encoder import encoder_of
from server.formats import FORMATS, ResponseFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 2_048  # A frame of the codec.
CODED: list[ResponseFormat] = [name for name, each in FORMATS.items() if each.coding]
# Least SNR of the decoded speech, in dB; lossless ones must be the same samples.
LEAST_SNR_DB = {"mp3": 20, "opus": 20, "aac": 25, "mulaw": 20}


@pytest.fixture(scope="module")
def speech(embedded_rows: list[dict[str, Any]]) -> NDArray[np.int16]:
    """Some seconds of human speech, of no length that is a multiple of anything."""
    rows = sorted(embedded_rows, key=lambda row: row["id"])[:2]
    clips: list[NDArray[np.float64]] = []
    for row in rows:
        clip, rate_hz = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="float64")
        clips.append(soxr.resample(clip, rate_hz, RATE_HZ))
    samples = np.concatenate(clips)[: 6 * RATE_HZ]
    samples = samples[: len(samples) - len(samples) % CHUNK - 321]
    return np.rint(samples / np.abs(samples).max() * 20_000).astype(np.int16)


def encode(
    name: ResponseFormat, samples: NDArray[np.int16], *, whole: bool = False, chunk: int = CHUNK
) -> list[bytes]:
    """What came of each chunk, and at the end."""
    encoder = encoder_of(name, whole=whole)
    parts = [
        encoder.push(samples[start : start + chunk].tobytes())
        for start in range(0, len(samples), chunk)
    ]
    return [*parts, encoder.end()]


@pytest.mark.parametrize("name", CODED)
def test_a_stream_decodes_to_the_pcm_within_the_codecs_delay(
    name: ResponseFormat, speech: NDArray[np.int16]
) -> None:
    heard = decode(name, b"".join(encode(name, speech)))
    delay = CODEC_DELAY.get(name, 0)
    if name == "flac":
        assert np.array_equal(heard, speech)
        return
    assert snr_db(heard, speech, delay) > LEAST_SNR_DB[name]
    # The end is there as well, by itself.
    tail = len(speech) - RATE_HZ // 5
    assert snr_db(heard[tail:], speech[tail:], delay) > LEAST_SNR_DB[name] - 10
    # mulaw's own samples are three of these.
    longest = {"mp3": 1_152 + 576, "aac": 2 * 1_024, "opus": 0, "mulaw": 2}[name]
    assert -3 < len(heard) - len(speech) <= longest


@pytest.mark.parametrize("name", CODED)
def test_a_file_tells_its_true_length_where_its_format_can(
    name: ResponseFormat, speech: NDArray[np.int16]
) -> None:
    *before, file = encode(name, speech, whole=True)
    assert set(before) == {b""}
    heard = decode(name, file)
    if name == "mulaw":
        assert len(file) == len(speech) // 3
    elif name == "aac":
        assert np.array_equal(heard, decode(name, b"".join(encode(name, speech))))
    else:
        # mp3's by the frame that LAME writes, opus' by Ogg's positions, flac's by its header.
        assert len(heard) == len(speech)
        assert snr_db(heard, speech) > LEAST_SNR_DB.get(name, 99)
        info = soundfile.info(io.BytesIO(file))
        assert info.frames / info.samplerate == pytest.approx(len(speech) / RATE_HZ, abs=1e-3)


@pytest.mark.parametrize("name", CODED)
def test_the_same_speech_is_the_same_bytes_however_it_is_cut_into_chunks(
    name: ResponseFormat, speech: NDArray[np.int16]
) -> None:
    meant, meant_whole = (b"".join(encode(name, speech, whole=whole)) for whole in (False, True))
    for chunk in (240, 1_000, len(speech)):
        streamed = b"".join(encode(name, speech, chunk=chunk))
        if name == "opus":
            # But for Ogg's serial number, which is another for each stream.
            assert np.array_equal(decode(name, streamed), decode(name, meant))
            assert streamed[14:18] != meant[14:18]
        else:
            assert streamed == meant
        assert encode(name, speech, chunk=chunk, whole=True)[-1] == meant_whole


@pytest.mark.parametrize("name", CODED)
def test_the_first_chunk_of_speech_gives_bytes_and_little_is_held_back(
    name: ResponseFormat, speech: NDArray[np.int16]
) -> None:
    encoder = encoder_of(name)
    held = [0]
    for start in range(0, len(speech), 240):
        size = len(encoder.push(speech[start : start + 240].tobytes()))
        taken = min(len(speech), start + 240)
        if taken > 2 * CHUNK:
            assert encoder.playable > 0
        assert size == 0 or encoder.playable > 0
        held.append(taken - encoder.playable)
    assert max(held) <= FORMATS[name].held_s * RATE_HZ
    # No less is promised than is needed: a planner would wait for nothing.
    assert max(held) >= FORMATS[name].held_s * RATE_HZ / 3
    encoder.close()
    assert len(encode(name, speech[:CHUNK])[0]) > 0


@pytest.mark.parametrize("name", CODED)
def test_a_stream_that_is_cut_off_decodes_up_to_there(
    name: ResponseFormat, speech: NDArray[np.int16]
) -> None:
    encoder = encoder_of(name)
    taken = 20 * CHUNK
    pushes = [speech[at : at + CHUNK].tobytes() for at in range(0, taken, CHUNK)]
    cut = b"".join([encoder.push(pcm) for pcm in pushes])
    playable = encoder.playable
    encoder.close()
    heard = decode(name, cut)
    # Decoders may keep the last frame of a stream whose end they have not seen.
    assert taken - playable < RATE_HZ / 10
    assert abs(len(heard) - playable) <= 1_152
    delay = CODEC_DELAY.get(name, 0)
    assert snr_db(heard[: 18 * CHUNK], speech[: 18 * CHUNK], delay) > LEAST_SNR_DB.get(name, 99)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_next_to_nothing_is_a_stream_too(name: ResponseFormat, whole: bool, count: int) -> None:
    data = b"".join(encode(name, np.full(count, 500, np.int16), whole=whole))
    if name == "wav":
        assert len(data) == 44 + 2 * count
    elif data and count == 100:
        assert len(decode(name, data)) >= count - 2


@pytest.mark.parametrize("name", CODED)
def test_an_encoder_that_has_ended_takes_nothing_more(name: ResponseFormat) -> None:
    encoder = encoder_of(name)
    encoder.push(bytes(2 * CHUNK))
    encoder.close()
    encoder.close()
    with pytest.raises(ValueError, match="has ended"):
        encoder.push(bytes(2 * CHUNK))


def test_encoders_that_are_given_up_leave_no_memory_behind(speech: NDArray[np.int16]) -> None:
    def give_up(count: int) -> None:
        for index in range(count):
            for name in CODED:
                encoder = encoder_of(name, whole=index % 2 == 1)
                encoder.push(speech[: 4 * CHUNK].tobytes())
                encoder.close()

    give_up(10)
    before = psutil.Process().memory_info().rss
    give_up(40)
    # An encoder's own buffers are some 100 kB: 200 of them would be 20 MB.
    assert psutil.Process().memory_info().rss - before < 4 << 20
