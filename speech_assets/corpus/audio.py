"""Audio bytes of any format to mono 24 kHz samples, with a clear reason when that cannot be.

libsndfile decodes first (WAV, FLAC, Ogg, MP3, AIFF, ...); FFmpeg, through PyAV, takes what it does
not know (M4A, WebM, G.722, ...) and streamed files that do not say how long they are. soxr
resamples at its highest quality. Samples are mixed to mono block by block, so that memory follows
the longest clip allowed and not what a small compressed file may unfold to.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

import numpy as np
import soundfile
import soxr

from server.frames import SAMPLE_RATE_HZ
from speech_assets.corpus.containers import check_whole, mp3_states_length
from speech_assets.corpus.quarantine import AudioError

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext
    from numpy.typing import NDArray

MIN_CLIP_S = 0.1
RATES_HZ = (4_000, 384_000)
_RAW_FORMATS = {".g722": "g722"}  # No header to recognise: FFmpeg is told by the file's suffix.
_BLOCK_SAMPLES = 1 << 16
_FINE_BLOCK_SAMPLES = 1 << 10
_UNKNOWN_FRAMES = 1 << 62  # libsndfile's count for a FLAC that was streamed is larger still.
_BAD_FILE = 7  # libsndfile's SFE_BAD_FILE.
# A clip is bytes from anywhere. FFmpeg must not take one for a playlist or a session description:
# those open files and sockets of this machine.
_FFMPEG_FORMATS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,eac3,flac,g722,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,"
    "mp3,mpeg,mpegts,ogg,tta,w64,wav,wv"
)
# Those whose header states the length; of the rest FFmpeg guesses it from the bit rate.
_FFMPEG_MEASURED = {"mov", "matroska", "webm", "asf", "caf", "tta", "wv", "ape", "avi"}
# FFmpeg's durations count an encoder's padding for some containers; a cut file loses more.
_DURATION_TOLERANCE_S = 0.5


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
    check_whole(data)
    mono = _decode(data, PurePath(path).suffix.lower(), max_clip_s)
    length = mono.length
    if length == 0:
        raise AudioError("empty", "a header without samples")
    if length < MIN_CLIP_S * mono.rate_hz:
        raise AudioError("too_short", f"{length / mono.rate_hz:.3f} s, need {MIN_CLIP_S} s")
    samples, gain = _within_full_scale(np.concatenate(mono.blocks))
    if mono.rate_hz != SAMPLE_RATE_HZ:
        # A band-limited signal may pass full scale between its samples.
        samples, more = _within_full_scale(_resample(samples, mono.rate_hz))
        gain *= more
    return DecodedClip(np.ascontiguousarray(samples), mono.rate_hz, mono.channels, gain)


def to_pcm16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """16-bit samples of float samples in -1..1, rounded to nearest."""
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)


def from_pcm16(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    """Float samples in -1..1 of 16-bit samples."""
    return pcm.astype(np.float32) / np.float32(32768.0)


def _within_full_scale(samples: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    peak = float(np.abs(samples).max())
    if peak <= 1.0:
        return samples, 1.0
    return np.divide(samples, peak, dtype=np.float32), 1.0 / peak


def _resample(mono: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    return soxr.resample(mono, rate_hz, SAMPLE_RATE_HZ, quality="VHQ").astype(np.float32)


class _Mono:
    """Blocks of samples as they are decoded, each mixed to mono and checked at once."""

    def __init__(self, rate_hz: int, max_clip_s: float) -> None:
        if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
            raise AudioError(
                "decode_error",
                f"sample rate {rate_hz} Hz is not within {RATES_HZ[0]}-{RATES_HZ[1]}",
            )
        self.rate_hz = rate_hz
        self.channels = 0
        self.length = 0
        self.blocks: list[NDArray[np.float32]] = []
        self._max_clip_s = max_clip_s

    @property
    def duration_s(self) -> float:
        return self.length / self.rate_hz

    def check_duration(self, duration_s: float) -> None:
        """Refuse what a header states, before any of it is decoded."""
        if duration_s > self._max_clip_s:
            raise AudioError("too_long", f"{duration_s:.1f} s, at most {self._max_clip_s:g} s")

    def append(self, block: NDArray[np.float32]) -> None:
        """Add a block of shape (samples, channels)."""
        finite = np.isfinite(block)
        if not finite.all():
            where = self.length + int(np.flatnonzero(~finite.all(axis=1))[0])
            raise AudioError("non_finite", f"NaN or infinity first at sample {where}")
        # The mean of one channel is that channel, and costs as much as decoding it.
        one = block[:, 0] if block.shape[1] == 1 else block.mean(axis=1, dtype=np.float64)
        self.blocks.append(one.astype(np.float32, copy=False))
        self.channels = block.shape[1]
        self.length += len(block)
        if self.duration_s > self._max_clip_s:
            raise AudioError(
                "too_long", f"it goes on after {self._max_clip_s:g} s, the most allowed"
            )


def _decode(data: bytes, suffix: str, max_clip_s: float) -> _Mono:
    try:
        if suffix in _RAW_FORMATS:
            return _decode_ffmpeg(data, _RAW_FORMATS[suffix], max_clip_s)
        try:
            mono = _decode_sndfile(data, max_clip_s)
        except soundfile.LibsndfileError as error:
            # Not `str(error)`: it names the buffer by its address, another one in every run. And
            # what looked like an MP3 and is none is called a file that does not exist.
            said = "Format not recognised." if error.code == _BAD_FILE else error.error_string
            return _decode_ffmpeg(data, None, max_clip_s, f"libsndfile: {said} FFmpeg: ")
        return mono or _decode_ffmpeg(data, None, max_clip_s)
    except (ValueError, ArithmeticError, LookupError) as error:
        # What the bindings make of a header that lies; it must cost this clip only.
        raise AudioError("decode_error", f"{type(error).__name__}: {error}") from error


def _decode_sndfile(data: bytes, max_clip_s: float) -> _Mono | None:
    """The clip as libsndfile reads it; None when it would guess the length, or does not know it."""
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        expected = file.frames
        guessed = file.format == "MP3" and not mp3_states_length(data)
        streamed = file.format in ("WAV", "WAVEX") and not expected  # Bytes follow its size of 0.
        if guessed or streamed or not 0 <= expected < _UNKNOWN_FRAMES:
            return None
        mono = _Mono(file.samplerate, max_clip_s)
        mono.check_duration(expected / mono.rate_hz)
        try:
            while len(block := file.read(_BLOCK_SAMPLES, dtype="float32", always_2d=True)):
                mono.append(np.asarray(block, np.float32))
        except soundfile.LibsndfileError as error:
            held = _samples_before_fault(data)
            # Where the end decodes, what failed before it is damaged and not cut off.
            cut = held and not _last_sample_decodes(data, expected)
            raise AudioError(
                "truncated" if cut else "decode_error",
                f"after {held} of {expected} samples: {error.error_string}",
            ) from error
        if mono.length < expected:
            raise AudioError("truncated", f"{mono.length} of {expected} samples are there")
    return mono


def _samples_before_fault(data: bytes) -> int:
    """How far a file that does not decode goes: a block that fails gives none of its samples."""
    held = 0
    with (
        contextlib.suppress(soundfile.LibsndfileError),
        soundfile.SoundFile(io.BytesIO(data)) as file,
    ):
        while count := len(file.read(_FINE_BLOCK_SAMPLES)):
            held += count
    return held


def _last_sample_decodes(data: bytes, expected: int) -> bool:
    with (
        contextlib.suppress(soundfile.LibsndfileError),
        soundfile.SoundFile(io.BytesIO(data)) as file,
    ):
        file.seek(expected - 1)
        return len(file.read(1)) == 1
    return False


def _decode_ffmpeg(
    data: bytes, container_format: str | None, max_clip_s: float, tried: str = ""
) -> _Mono:
    mono: _Mono | None = None
    # Only now: most corpora never need FFmpeg.
    import av
    import av.error

    try:
        with av.open(
            io.BytesIO(data),
            "r",
            format=container_format,
            metadata_errors="replace",
            options={"format_whitelist": _FFMPEG_FORMATS},
        ) as container:
            if not container.streams.audio:
                raise AudioError("decode_error", "no audio stream in it")
            stream = container.streams.audio[0]
            # PyAV's types do not say so, but it is None where FFmpeg has no decoder.
            codec = cast("AudioCodecContext | None", stream.codec_context)
            if codec is None:
                raise AudioError("decode_error", f"{tried}no decoder for its codec")
            mono = _Mono(codec.sample_rate or 0, max_clip_s)
            measured = bool(_FFMPEG_MEASURED.intersection(container.format.name.split(",")))
            stated_s = (container.duration or 0) / av.time_base if measured else 0.0
            mono.check_duration(stated_s)
            resampler = av.AudioResampler(format="fltp")
            packets = container.demux(stream)
            try:
                for packet in packets:
                    for frame in packet.decode():
                        for planes in resampler.resample(frame):
                            mono.append(np.asarray(planes.to_ndarray().T, np.float32))
            except (av.error.FFmpegError, ValueError) as error:
                # ValueError: rate or channels change midway. A last packet that fails was cut.
                cut = mono.length and not any(packet.size for packet in packets)
                raise AudioError(
                    "truncated" if cut else "decode_error",
                    f"after {mono.duration_s:.2f} s: {_said(error)}",
                ) from error
    except av.error.FFmpegError as error:
        raise AudioError("decode_error", f"{tried}{_said(error)}") from error
    if mono.duration_s < stated_s - _DURATION_TOLERANCE_S:
        raise AudioError("truncated", f"{mono.duration_s:.2f} of {stated_s:.2f} s are there")
    return mono


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
