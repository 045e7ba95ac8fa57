"""What an audio file's header says it holds, against the bytes that are there.

libsndfile trusts a file's length over its header and decodes a cut file without a word, so the
headers that state a length are read here: WAV (RIFF, RIFX, RF64, BW64), AIFF, 8SVX, CAF, W64, AU,
NIST SPHERE and MP4 by their sizes, Ogg by the mark on its last page. FLAC, MP3 and FFmpeg's other
containers are checked while decoding; what states no length (G.722, a live WebM, samplers' formats)
cannot be told from a shorter clip.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.corpus.quarantine import AudioError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Sizes of a streamed file, whose writer could not go back: it ends where the bytes end.
_UNKNOWN_SIZES = (0xFFFFFFFF, 0x7FFFFFFF)
_UNKNOWN_SIZE_64 = 1 << 62  # CAF and W64 give one from here up.
_ENTRY_OF_W64 = bytes.fromhex("726966662e91cf11a5d628db04c10000")
_OGG_PAGE, _OGG_PAGE_HEADER, _OGG_LAST = b"OggS", 27, 0x04
_NIST_HEADER = 1024
_MP3_LENGTH_TAGS = (b"Xing", b"Info", b"VBRI")
_MP3_FRAME = 2048  # More than the longest frame, 1,729 bytes.


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Layout of a file of chunks: where they start, format of a size, padding, audio's chunk."""

    name: str
    first: int
    size: str
    pad: int
    audio: bytes


def check_whole(data: bytes) -> None:
    """Raise when `data` holds less audio than its header says; formats that say nothing pass.

    Raises:
        AudioError: truncated, or empty when the header is complete and no audio follows.
    """
    if data.startswith(_OGG_PAGE):
        _check_ogg(data)
        return
    if data[4:8] == b"ftyp":
        _check_mp4(data)
        return
    name, sizes = _audio_sizes(data)
    if name is None:
        return
    if sizes is None:
        raise AudioError("truncated", f"{name}: the bytes end within the header, at {len(data)}")
    declared, held = sizes
    if declared == 0 and held == 0:
        raise AudioError("empty", f"a {name} header without audio")
    if held < declared < _UNKNOWN_SIZE_64 and declared not in _UNKNOWN_SIZES:
        raise AudioError(
            "truncated", f"{name} header says {declared} bytes of audio, {held} are there"
        )


def mp3_states_length(data: bytes) -> bool:
    """Whether an MP3's first frame says how long it is; without that, lengths are guesses."""
    first = 0
    if data[:3] == b"ID3" and len(data) >= 10:
        first = 10 + sum(
            (byte & 0x7F) << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=True)
        )
    return any(tag in data[first : first + _MP3_FRAME] for tag in _MP3_LENGTH_TAGS)


def _audio_sizes(data: bytes) -> tuple[str | None, tuple[int, int] | None]:
    """Name of the format, None when it is not one of these, and (declared, held) bytes of audio."""
    magic, form = data[:4], data[8:12]
    if magic in (b"RIFF", b"RF64", b"BW64") and form == b"WAVE":
        return "WAV", _chunk_sizes(data, _Chunks("WAV", 12, "<I", 2, b"data"))
    if magic == b"RIFX" and form == b"WAVE":
        return "WAV", _chunk_sizes(data, _Chunks("WAV", 12, ">I", 2, b"data"))
    if magic == b"FORM" and form in (b"AIFF", b"AIFC"):
        return "AIFF", _chunk_sizes(data, _Chunks("AIFF", 12, ">I", 2, b"SSND"))
    if magic == b"FORM" and form in (b"8SVX", b"16SV"):
        return "8SVX", _chunk_sizes(data, _Chunks("8SVX", 12, ">I", 2, b"BODY"))
    if magic == b"caff":
        return "CAF", _chunk_sizes(data, _Chunks("CAF", 8, ">Q", 1, b"data"))
    if data[:16] == _ENTRY_OF_W64:
        return "W64", _w64_sizes(data)
    if magic in (b".snd", b"dns."):
        return "AU", _au_sizes(data, ">" if magic == b".snd" else "<")
    if data[:7] == b"NIST_1A":
        return "NIST", _nist_sizes(data)
    return None, None


def _chunk_sizes(data: bytes, chunks: _Chunks) -> tuple[int, int] | None:
    long_audio: int | None = None  # RF64 states sizes over 4 GiB in a chunk of their own.
    for name, size, start in _iterate_chunks(data, chunks):
        if name == b"ds64" and start + 16 <= len(data):
            long_audio = struct.unpack_from("<Q", data, start + 8)[0]
        if name == chunks.audio:
            declared = long_audio if long_audio is not None and size == 0xFFFFFFFF else size
            held = len(data) - start
            return declared, held
    return None


def _iterate_chunks(data: bytes, chunks: _Chunks) -> Iterator[tuple[bytes, int, int]]:
    head = 4 + struct.calcsize(chunks.size)
    at = chunks.first
    while at + head <= len(data):
        size = struct.unpack_from(chunks.size, data, at + 4)[0]
        yield data[at : at + 4], size, at + head
        at += head + size + size % chunks.pad


def _w64_sizes(data: bytes) -> tuple[int, int] | None:
    at = 40  # The riff GUID, the file's size and the wave GUID.
    while at + 24 <= len(data):
        size = struct.unpack_from("<Q", data, at + 16)[0]  # Its own 24 bytes included.
        if data[at : at + 4] == b"data":
            return size - 24, len(data) - at - 24
        at += max(24, size + -size % 8)
    return None


def _au_sizes(data: bytes, order: str) -> tuple[int, int] | None:
    if len(data) < 24:
        return None
    start, size = struct.unpack_from(f"{order}II", data, 4)
    return size, max(0, len(data) - start)


def _nist_sizes(data: bytes) -> tuple[int, int] | None:
    if len(data) < _NIST_HEADER:
        return None
    fields = dict(re.findall(rb"(?m)^(\w+) -i (\d+)\s*$", data[:_NIST_HEADER]))
    try:
        samples, sample_bytes = int(fields[b"sample_count"]), int(fields[b"sample_n_bytes"])
    except KeyError:
        samples, sample_bytes = 0, 0
    held = len(data) - _NIST_HEADER
    return (samples * sample_bytes * int(fields.get(b"channel_count", b"1")) or held), held


def _check_ogg(data: bytes) -> None:
    at = data.rfind(_OGG_PAGE)
    end = at + _OGG_PAGE_HEADER
    if end <= len(data):
        segments = data[end : end + data[at + 26]]
        end += data[at + 26] + sum(segments)
    if end > len(data):
        raise AudioError("truncated", f"Ogg: the last page ends {end - len(data)} bytes too late")
    if not data[at + 5] & _OGG_LAST:
        raise AudioError("truncated", "Ogg: the page that ends the stream is not there")


def _check_mp4(data: bytes) -> None:
    at = 0
    while at + 8 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        if size == 1 and at + 16 <= len(data):
            size = struct.unpack_from(">Q", data, at + 8)[0]
        if size < 8:  # 0: to the end of the file.
            return
        if at + size > len(data):
            raise AudioError(
                "truncated",
                f"MP4: box {data[at + 4 : at + 8]!r} of {size} bytes, {len(data) - at} are there",
            )
        at += size
