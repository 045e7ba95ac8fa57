"""Audio bytes of any format to mono 24 kHz samples, with a clear reason when that cannot be.

libsndfile decodes first (WAV, FLAC, Ogg, MP3, AIFF, ...); FFmpeg, through PyAV, takes what it does not
know (M4A, WebM, G.722, ...). soxr resamples at its highest quality.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import av
import av.error
import numpy as np
import soundfile
import soxr

from server.frames import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from speech_assets.corpus.quarantine import Reason

MIN_CLIP_S = 0.1
RATES_HZ = (4_000, 384_000)
_RAW_FORMATS = {".g722": "g722"}  # No header to recognise: FFmpeg is told by the file's suffix.
_BLOCK_SAMPLES = 1 << 20
# FFmpeg's durations are estimates for some containers; a cut file loses more than this.
_DURATION_TOLERANCE_S = 0.5
# 0 and 0xFFFFFFFF are the sizes of a WAV that was streamed: its end is the end of the bytes.
_STREAMED_SIZES = (0, 0xFFFFFFFF, 0x7FFFFFFF)


class AudioError(Exception):
    """A clip cannot be used; `reason` is one of the quarantine's list."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class DecodedClip:
    """Mono samples at 24 kHz within -1..1, and what they were made from.

    `gain` is 1.0, or the factor that brought float samples over full scale back to it.
    """

    samples: NDArray[np.float32]
    source_rate_hz: int
    source_channels: int
    gain: float


def decode_clip(data: bytes, *, path: str = "", max_clip_s: float = 60.0) -> DecodedClip:
    """The clip in `data`; `path` helps to recognise formats that have no header.

    Raises:
        AudioError: decode_error, truncated, empty, too_short, too_long or non_finite.
    """
    if not data:
        raise AudioError("empty", "0 bytes of audio")
    _check_wav_sizes(data)
    try:
        audio, rate_hz = _decode_sndfile(data, max_clip_s)
    except soundfile.LibsndfileError as sndfile_error:
        audio, rate_hz = _decode_ffmpeg(data, path, max_clip_s, str(sndfile_error))
    if audio.shape[0] == 0:
        raise AudioError("empty", "a header without samples")
    if not np.isfinite(audio).all():
        where = int(np.flatnonzero(~np.isfinite(audio).all(axis=1))[0])
        raise AudioError("non_finite", f"NaN or infinity first at sample {where}")
    if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
        raise AudioError("decode_error", f"sample rate {rate_hz} Hz is outside {RATES_HZ}")
    mono = audio.mean(axis=1, dtype=np.float32)
    if len(mono) < MIN_CLIP_S * rate_hz:
        raise AudioError("too_short", f"{len(mono) / rate_hz:.3f} s, need {MIN_CLIP_S} s")
    samples = mono if rate_hz == SAMPLE_RATE_HZ else _resample(mono, rate_hz)
    # After resampling: a band-limited signal may pass full scale between its samples.
    peak = float(np.abs(samples).max())
    gain = 1.0 if peak <= 1.0 else 1.0 / peak
    if gain != 1.0:
        samples = samples * np.float32(gain)
    return DecodedClip(np.ascontiguousarray(samples), rate_hz, audio.shape[1], gain)


def to_pcm16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """16-bit samples of float samples in -1..1, rounded to nearest."""
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)


def from_pcm16(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    """Float samples in -1..1 of 16-bit samples."""
    return pcm.astype(np.float32) / np.float32(32768.0)


def _resample(mono: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    return soxr.resample(mono, rate_hz, SAMPLE_RATE_HZ, quality="VHQ").astype(np.float32)


def _check_wav_sizes(data: bytes) -> None:
    """Raise `truncated` when a RIFF file says it holds more audio than there is.

    libsndfile trusts the file's length over the header and would decode a cut file without a word.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        if name == b"data":
            held = len(data) - at - 8
            if size not in _STREAMED_SIZES and size > held:
                raise AudioError("truncated", f"WAV header says {size} bytes of audio, {held} are there")
            return
        at += 8 + size + size % 2
    if len(data) <= 44:
        raise AudioError("empty", "a WAV header without a data chunk")


def _decode_sndfile(data: bytes, max_clip_s: float) -> tuple[NDArray[np.float32], int]:
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        rate_hz, expected = file.samplerate, file.frames
        _check_duration(expected / rate_hz, max_clip_s)
        blocks: list[NDArray[np.float32]] = []
        held = 0
        try:
            while held < expected:
                block = file.read(_BLOCK_SAMPLES, dtype="float32", always_2d=True)
                if not len(block):
                    break
                blocks.append(block)
                held += len(block)
        except soundfile.LibsndfileError as error:
            reason: Reason = "truncated" if held else "decode_error"
            raise AudioError(reason, f"after {held} of {expected} samples: {error}") from error
        if held < expected:
            raise AudioError("truncated", f"{held} of {expected} samples are there")
        empty = np.zeros((0, file.channels), np.float32)
    return (np.concatenate(blocks) if blocks else empty), rate_hz


def _decode_ffmpeg(
    data: bytes, path: str, max_clip_s: float, sndfile_detail: str
) -> tuple[NDArray[np.float32], int]:
    try:
        with av.open(
            io.BytesIO(data), format=_RAW_FORMATS.get(PurePath(path).suffix.lower())
        ) as container:
            if not container.streams.audio:
                raise AudioError("decode_error", "no audio stream in it")
            stream = container.streams.audio[0]
            duration_s = container.duration / av.time_base if container.duration else None
            if duration_s is not None:
                _check_duration(duration_s, max_clip_s)
            resampler = av.AudioResampler(format="fltp")
            blocks: list[NDArray[np.float32]] = []
            held = 0
            for frame in container.decode(stream):
                for plane in resampler.resample(frame):
                    block = plane.to_ndarray().T
                    blocks.append(block)
                    held += len(block)
                _check_duration(held / stream.rate, max_clip_s)
            rate_hz = stream.rate
    except av.error.FFmpegError as error:
        raise AudioError(
            "decode_error", f"libsndfile: {sndfile_detail}; FFmpeg: {error.strerror or error}"
        ) from error
    if not blocks:
        return np.zeros((0, 1), np.float32), rate_hz
    if duration_s is not None and held / rate_hz < duration_s - _DURATION_TOLERANCE_S:
        raise AudioError("truncated", f"{held / rate_hz:.2f} of {duration_s:.2f} s are there")
    return np.concatenate(blocks), rate_hz


def _check_duration(duration_s: float, max_clip_s: float) -> None:
    if duration_s > max_clip_s:
        raise AudioError("too_long", f"{duration_s:.1f} s, at most {max_clip_s:g} s")
