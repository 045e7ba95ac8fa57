"""What audio a stream of bytes was, and how much of it could be played at which arrival.

Done after the request has ended, so that it takes no time from the measurement: the bytes and their
times are all there is to know. Of a compressed stream a packet can be played once its last byte is
there (Ogg: the last byte of its page, whose checksum players look at first).
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import av
import numpy as np
from av.error import FFmpegError

from speech_assets.bench.exchange import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from speech_assets.bench.options import Format

PCM_RATE_HZ = 24_000  # OpenAI's pcm, which says nothing of itself.
MULAW_RATE_HZ = 8_000
_UNKNOWN_SIZES = (0, 0x7FFFFFFF, 0xFFFFFFFF)
_MAGIC = {b"RIFF": "wav", b"OggS": "ogg", b"fLaC": "flac", b"ID3": "mp3"}
_DEMUXERS = {"mp3": "mp3", "opus": "ogg", "flac": "flac", "aac": "aac"}
# White noise at full scale, which is what bytes that are no samples sound like, has -4.8 dBFS and
# crosses zero at every other sample. The loudest speech does neither.
_NOISE_RMS = 32_768 * 10 ** (-8 / 20)
_NOISE_CROSSINGS = 0.4


@dataclass(frozen=True, slots=True)
class Audio:
    """Decoded samples (int16, mono), and how many of them each arrival made playable."""

    samples: NDArray[np.int16]
    rate_hz: int
    playable: tuple[int, ...]
    problem: tuple[Outcome, str] | None = None

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.samples) / self.rate_hz


def decode(kind: Format, pieces: Sequence[bytes]) -> Audio:
    """What `pieces`, in order of arrival, are as `kind`. What is wrong with them is `problem`."""
    ends = list(accumulate(len(piece) for piece in pieces))
    body = b"".join(pieces)
    if kind == "pcm":
        return _pcm(body, ends)
    if kind == "wav":
        return _wav(body, ends)
    if kind == "mulaw":
        return _from_bytes(_mulaw(body), MULAW_RATE_HZ, ends, [], 1, None)
    return _compressed(kind, body, ends)


def _pcm(body: bytes, ends: Sequence[int]) -> Audio:
    samples = np.frombuffer(body, "<i2", len(body) // 2)
    problem: tuple[Outcome, str] | None = None
    for magic, name in _MAGIC.items():
        if body.startswith(magic):
            problem = ("garbage", f"pcm was asked for and {name} came")
    if problem is None and _is_text(body):
        problem = ("garbage", f"words came instead of audio: {body[:80].decode()!r}")
    if problem is None:
        problem = _noise(samples)
    if problem is None and len(body) % 2:
        problem = ("truncated", f"{len(body)} bytes are not whole 16-bit samples")
    return _from_bytes(samples, PCM_RATE_HZ, ends, [], 2, problem)


def _wav(body: bytes, ends: Sequence[int]) -> Audio:
    if body[:4] != b"RIFF" or body[8:12] != b"WAVE":
        return _nothing(ends, ("garbage", f"wav was asked for and the stream begins {body[:16]!r}"))
    headers: list[tuple[int, int]] = []
    rate_hz, channels, size = PCM_RATE_HZ, 1, 0
    at = 0
    while at >= 0:
        end, found, problem = _wav_header(body, at)
        if found is None:
            if headers:  # "RIFF" within the audio by chance, or the end cut it.
                at = body.find(b"RIFF", at + 4)
                continue
            return _nothing(ends, problem)
        if not headers:
            rate_hz, channels, size = found
        headers.append((at, end))
        at = body.find(b"RIFF", end)
    kept = b"".join(
        body[end:after]
        for (_, end), after in zip(
            headers, [*(start for start, _ in headers[1:]), len(body)], strict=True
        )
    )
    frame = 2 * channels
    samples = np.frombuffer(kept, "<i2", len(kept) // frame * channels)
    if channels > 1:
        samples = samples.reshape(-1, channels).mean(1).astype(np.int16)
    problem = None
    if len(headers) > 1:
        problem = ("header_per_chunk", f"{len(headers)} WAV headers in one stream")
    elif size not in _UNKNOWN_SIZES and len(kept) < size:
        problem = ("truncated", f"the WAV header says {size} bytes of audio, {len(kept)} came")
    return _from_bytes(samples, rate_hz, ends, headers, frame, problem or _noise(samples))


def _wav_header(
    body: bytes, at: int
) -> tuple[int, tuple[int, int, int] | None, tuple[Outcome, str]]:
    """End of the header at `at`, (rate, channels, size of the data), and what is wrong if None."""
    if body[at + 8 : at + 12] != b"WAVE":
        return at, None, ("garbage", "no WAV header")
    form: tuple[int, int, int, int] | None = None
    place = at + 12
    while place + 8 <= len(body):
        name, size = struct.unpack_from("<4sI", body, place)
        place += 8
        if name == b"data":
            if form is None:
                return at, None, ("garbage", "the WAV header has no fmt chunk")
            encoding, channels, rate_hz, bits = form
            # 0xFFFE is the extensible form, of which 16-bit PCM is one.
            if encoding not in (1, 0xFFFE) or bits != 16 or not channels:
                words = f"WAV of encoding {encoding}, {bits} bits, {channels} channels"
                return at, None, ("garbage", f"{words} is not 16-bit PCM")
            return place, (rate_hz, channels, size), ("ok", "")
        if name == b"fmt " and place + 16 <= len(body):
            form = struct.unpack_from("<HHI6xH", body, place)
        place += size + size % 2
    return at, None, ("truncated", f"the stream ended within the WAV header, at byte {len(body)}")


def _from_bytes(
    samples: NDArray[np.int16],
    rate_hz: int,
    ends: Sequence[int],
    headers: Sequence[tuple[int, int]],
    frame_bytes: int,
    problem: tuple[Outcome, str] | None,
) -> Audio:
    """Audio of fixed size: byte `end` of the stream tells which samples are there."""
    playable: list[int] = []
    before = 0
    for end in ends:
        skipped = sum(min(stop, end) - start for start, stop in headers if start < end)
        whole = min((end - skipped) // frame_bytes, len(samples))
        playable.append(whole - before)
        before = whole
    return Audio(samples, rate_hz, tuple(playable), problem)


def _mulaw(body: bytes) -> NDArray[np.int16]:
    """G.711 mu-law expanded to 16 bits."""
    code = ~np.frombuffer(body, np.uint8)
    magnitude = (((code & 0x0F).astype(np.int32) << 3) + 0x84) << ((code & 0x70) >> 4)
    magnitude -= 0x84
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _is_text(body: bytes) -> bool:
    """Whether all of it is printable ASCII, which no audio is: silence is zeros."""
    return bool(body) and body.isascii() and all(byte >= 0x20 or byte in b"\t\r\n" for byte in body)


def _noise(samples: NDArray[np.int16]) -> tuple[Outcome, str] | None:
    """Whether samples are bytes of something else: white noise at full scale."""
    if len(samples) < PCM_RATE_HZ // 10:
        return None
    rms = float(np.sqrt(np.square(samples, dtype=np.float64).mean()))
    crossings = float((np.signbit(samples[1:]) != np.signbit(samples[:-1])).mean())
    if rms > _NOISE_RMS and crossings > _NOISE_CROSSINGS:
        return "garbage", "white noise at full scale: not 16-bit little-endian samples"
    return None


def _compressed(kind: str, body: bytes, ends: Sequence[int]) -> Audio:
    pages = _ogg_page_ends(body) if kind == "opus" else []
    blocks: list[NDArray[np.int16]] = []
    playable = [0] * len(ends)
    rate_hz = PCM_RATE_HZ
    problem: tuple[Outcome, str] | None = None
    try:
        with av.open(io.BytesIO(body), "r", format=_DEMUXERS[kind]) as container:
            stream = container.streams.audio[0]
            rate_hz = stream.codec_context.sample_rate or rate_hz
            resampler = av.AudioResampler(format="s16", layout="mono")
            end = 0
            for packet in container.demux(stream):
                if packet.size:
                    end = (packet.pos if packet.pos is not None else end) + packet.size
                    if pages:
                        end = pages[min(bisect_left(pages, end), len(pages) - 1)]
                arrival = min(bisect_left(ends, end), len(ends) - 1)
                for frame in packet.decode():
                    for mono in resampler.resample(frame):
                        block = mono.to_ndarray().reshape(-1).astype(np.int16)
                        blocks.append(block)
                        playable[arrival] += len(block)
    except (FFmpegError, IndexError, EOFError) as error:
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        # What was decoded before stays; a stream of which nothing was is none of this format.
        problem = ("truncated" if blocks else "garbage", f"the {kind} stream: {words}")
    if not blocks:
        return _nothing(ends, problem or ("garbage", f"no {kind} audio in {len(body)} bytes"))
    return Audio(np.concatenate(blocks), rate_hz, tuple(playable), problem)


def _ogg_page_ends(body: bytes) -> list[int]:
    """Where each Ogg page ends."""
    ends: list[int] = []
    at = 0
    while body[at : at + 4] == b"OggS" and at + 27 <= len(body):
        count = body[at + 26]
        at += 27 + count + sum(body[at + 27 : at + 27 + count])
        ends.append(at)
    return ends


def _nothing(ends: Sequence[int], problem: tuple[Outcome, str]) -> Audio:
    return Audio(np.zeros(0, np.int16), PCM_RATE_HZ, (0,) * len(ends), problem)
