"""Whether a compressed stream ends where it should: decoders make do with half a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_OGG_HEADER = 27
_OGG_LAST = 0x04
# MPEG-1 and MPEG-2/2.5, layer III: kbit/s by the index of the frame's header.
_MP3_KBITS = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
_MP3_RATES_HZ = {
    3: (44_100, 48_000, 32_000),
    2: (22_050, 24_000, 16_000),
    0: (11_025, 12_000, 8_000),
}
_LAYER_3 = 1
_HEADER_BYTES = {"mp3": 4, "aac": 7}


def cut_off(kind: str, body: bytes, last_packet: bytes, samples: int) -> str:
    """In what way the end of the stream is missing; empty if it is not.

    `last_packet` and `samples`: the last packet, and how many samples were decoded.
    """
    if kind == "opus":
        return _ogg_cut(body)
    if kind == "flac":
        return _flac_cut(body, last_packet, samples)
    return _frame_cut(body, _mp3_frame if kind == "mp3" else _aac_frame, _HEADER_BYTES[kind])


def ogg_page_ends(body: bytes) -> list[int]:
    """Where each Ogg page ends, the last one perhaps after the stream does."""
    return [end for _, end in _ogg_pages(body)]


def _ogg_pages(body: bytes) -> list[tuple[int, int]]:
    pages: list[tuple[int, int]] = []
    at = 0
    while body[at : at + 4] == b"OggS" and at + _OGG_HEADER <= len(body):
        count = body[at + 26]
        table = body[at + _OGG_HEADER : at + _OGG_HEADER + count]
        end = at + _OGG_HEADER + count + sum(table)
        pages.append((at, end))
        at = end
    return pages


def _ogg_cut(body: bytes) -> str:
    pages = _ogg_pages(body)
    if not pages or pages[-1][1] != len(body):
        return "ends within an Ogg page"
    at, _ = pages[-1]
    return "" if body[at + 5] & _OGG_LAST else "has no last page: its end was not said"


def _flac_cut(body: bytes, last: bytes, samples: int) -> str:
    if len(last) < 3 or _crc16(last[:-2]) != int.from_bytes(last[-2:], "big"):
        return "ends within a frame"
    # STREAMINFO's; 0 is unknown.
    total = int.from_bytes(body[18:26], "big") & (1 << 36) - 1 if body[:4] == b"fLaC" else 0
    return f"has {samples} samples, and its header says {total}" if samples < total else ""


def _frame_cut(body: bytes, frame_of: Callable[[bytes], int], header_bytes: int) -> str:
    """Walk from frame to frame; only a frame that the end of the stream cuts says anything."""
    at = _after_id3(body)
    while at < len(body):
        header = body[at : at + header_bytes]
        if len(header) < header_bytes and header[:1] == b"\xff":
            return f"ends within a frame's header, {len(header)} bytes of it came"
        size = frame_of(header)
        if not size:
            return ""  # A tag at the end, padding, or what the decoder has judged.
        if at + size > len(body):
            return f"ends within a frame: {len(body) - at} of {size} bytes came"
        at += size
    return ""


def _after_id3(body: bytes) -> int:
    if body[:3] != b"ID3" or len(body) < 10:
        return 0
    size = 0
    for byte in body[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size


def _mp3_frame(header: bytes) -> int:
    """Bytes of the frame that begins so; 0 if none does."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return 0
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    index, rate = header[2] >> 4, header[2] >> 2 & 3
    if version not in _MP3_RATES_HZ or layer != _LAYER_3 or index in (0, 15) or rate == 3:
        return 0
    is_first = version == 3
    bits = _MP3_KBITS[not is_first][index] * 1_000
    return (144 if is_first else 72) * bits // _MP3_RATES_HZ[version][rate] + (header[2] >> 1 & 1)


def _aac_frame(header: bytes) -> int:
    if len(header) < 7 or header[0] != 0xFF or header[1] & 0xF6 != 0xF0:
        return 0
    return (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5


def _crc16(data: bytes) -> int:
    """FLAC's: polynomial 0x8005, from 0, not reflected."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFF00) ^ _CRC16[crc >> 8 ^ byte]
    return crc


def _crc16_table() -> tuple[int, ...]:
    table: list[int] = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x8005 if crc & 0x8000 else crc << 1) & 0xFFFF
        table.append(crc)
    return tuple(table)


_CRC16 = _crc16_table()
