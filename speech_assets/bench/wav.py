"""WAV as it streams: its header, its samples, and what does not belong to them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from speech_assets.bench.samples import LEAST_RATE_HZ, PCM_RATE_HZ, Audio, nothing, of_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.bench.samples import Problem

# Who does not know the size yet writes 0, or the most that he can: 2^32 - 1 or 2^31 - 1, or
# somewhat less where the header is taken off (sox has 0x7FFFF000).
_UNKNOWN_FROM = 0x7FFF0000
_MOST_RATE_HZ = 1_000_000
_MOST_CHANNELS = 32


def decode_wav(body: bytes, ends: Sequence[int]) -> Audio:
    """The 16-bit PCM of a WAV stream; `ends` are where each arrival ended."""
    if body[:4] != b"RIFF" or body[8:12] != b"WAVE":
        return nothing(ends, ("garbage", f"wav was asked for and the stream begins {body[:16]!r}"))
    headers: list[tuple[int, int]] = []
    rate_hz, channels, size = PCM_RATE_HZ, 1, 0
    at = 0
    while at >= 0:
        end, found, problem = _header(body, at)
        if found is None:
            if headers:  # "RIFF" within the audio by chance, or the end cut it.
                at = body.find(b"RIFF", at + 4)
                continue
            return nothing(ends, problem)
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
    problem = None
    if len(headers) > 1:
        problem = ("header_per_chunk", f"{len(headers)} WAV headers in one stream")
    elif 0 < size < _UNKNOWN_FROM:
        kept, problem = _of_size(kept, size)
    if problem is None and len(kept) % frame:
        words = f"{len(kept)} bytes of audio are not whole samples of {channels} times 16 bits"
        problem = ("truncated", words)
    samples = np.frombuffer(kept, "<i2", len(kept) // frame * channels)
    if channels > 1:
        samples = samples.reshape(-1, channels).mean(1).astype(np.int16)
    return of_bytes(samples, rate_hz, ends, headers, frame, problem)


def _of_size(kept: bytes, size: int) -> tuple[bytes, Problem | None]:
    """The audio of what follows a header that says its size, and what is wrong with that."""
    if len(kept) < size:
        return kept, (
            "truncated",
            f"the WAV header says {size} bytes of audio, {len(kept)} came",
        )
    at = size + size % 2
    while at < len(kept):
        # Other chunks may follow: LIST, id3, and the like.
        name, length = kept[at : at + 4], int.from_bytes(kept[at + 4 : at + 8], "little")
        if len(name) < 4 or not all(0x20 <= byte < 0x7F for byte in name):
            return kept, (
                "garbage",
                f"the WAV header says {size} bytes of audio, {len(kept)} came: "
                "players would end before it does",
            )
        at += 8 + length + length % 2
    return kept[:size], None


def _header(body: bytes, at: int) -> tuple[int, tuple[int, int, int] | None, Problem]:
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
            is_pcm = encoding in (1, 0xFFFE) and bits == 16 and 1 <= channels <= _MOST_CHANNELS
            if not is_pcm or not LEAST_RATE_HZ <= rate_hz <= _MOST_RATE_HZ:
                words = f"WAV of encoding {encoding}, {bits} bits, {channels} channels, "
                return at, None, ("garbage", f"{words}{rate_hz} Hz is not 16-bit PCM of speech")
            return place, (rate_hz, channels, size), ("ok", "")
        if name == b"fmt " and place + 16 <= len(body):
            form = struct.unpack_from("<HHI6xH", body, place)
        place += size + size % 2
    return at, None, ("truncated", f"the stream ended within the WAV header, at byte {len(body)}")
