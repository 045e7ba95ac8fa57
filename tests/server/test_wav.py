"""WAV headers, read back by libsndfile and by the standard library."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest
import soundfile

from server.wav import HEADER_BYTES, UNKNOWN_SIZE, wav_header

PCM = np.arange(-3_000, 3_000, dtype="<i2")


def test_a_whole_file_is_what_libsndfile_and_python_read() -> None:
    file = wav_header(PCM.nbytes) + PCM.tobytes()
    samples, rate = soundfile.read(io.BytesIO(file), dtype="int16")
    assert rate == 24_000
    assert np.array_equal(samples, PCM)
    with wave.open(io.BytesIO(file)) as reader:
        assert reader.getparams()[:4] == (1, 2, 24_000, len(PCM))


def test_a_stream_says_that_its_length_is_not_known() -> None:
    header = wav_header()
    assert len(header) == HEADER_BYTES
    assert struct.unpack_from("<I", header, 4) == struct.unpack_from("<I", header, 40)
    assert struct.unpack_from("<I", header, 40)[0] == UNKNOWN_SIZE == 0xFFFFFFFF


def test_a_file_too_long_for_its_header_is_refused() -> None:
    with pytest.raises(ValueError, match="stream them instead"):
        wav_header(UNKNOWN_SIZE)
