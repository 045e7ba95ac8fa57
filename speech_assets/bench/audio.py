"""What audio a stream of bytes was, and how much of it could be played at which arrival.

Done after the request has ended, so that it takes no time from the measurement: the bytes and their
times are all there is to know. Of a compressed stream a packet can be played once its last byte is
there (Ogg: the last byte of its page, whose checksum players look at first).
"""

from __future__ import annotations

import dataclasses
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from speech_assets.bench.compressed import decode_compressed
from speech_assets.bench.samples import LEAST_RATE_HZ, PCM_RATE_HZ, Audio, nothing, of_bytes
from speech_assets.bench.wav import decode_wav

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from speech_assets.bench.options import Format
    from speech_assets.bench.samples import Problem

MULAW_RATE_HZ = 8_000
_MAGIC = {
    b"RIFF": "wav",
    b"OggS": "ogg",
    b"fLaC": "flac",
    b"ID3": "mp3",
    b"\x1f\x8b\x08": "gzip",
    b"\x1aE\xdf\xa3": "webm",
}
# Of 16-bit samples at most one in two bytes is printable by chance: the other is its sign's.
_WORDS_SHARE = 0.9
# White noise at full scale, which is what bytes that are no samples sound like, has -4.8 dBFS and
# crosses zero at every other sample. The loudest speech does neither.
_NOISE_RMS = 32_768 * 10 ** (-8 / 20)
_NOISE_CROSSINGS = 0.4


def decode(kind: Format, pieces: Sequence[bytes]) -> Audio:
    """What `pieces`, in order of arrival, are as `kind`. What is wrong with them is `problem`."""
    ends = list(accumulate(len(piece) for piece in pieces))
    body = b"".join(pieces)
    if kind == "pcm":
        samples = np.frombuffer(body, "<i2", len(body) // 2)
        problem = _raw_problem("pcm", body) or _noise(samples) or _odd(body)
        return of_bytes(samples, PCM_RATE_HZ, ends, [], 2, problem)
    if kind == "mulaw":
        problem = _raw_problem("mulaw", body)
        return of_bytes(_mulaw(body), MULAW_RATE_HZ, ends, [], 1, problem)
    if kind == "wav":
        audio = decode_wav(body, ends)
        return dataclasses.replace(audio, problem=audio.problem or _noise(audio.samples))
    audio = decode_compressed(kind, body, ends)
    if audio.rate_hz < LEAST_RATE_HZ:
        return nothing(ends, ("garbage", f"{kind} of {audio.rate_hz} Hz is no speech"))
    return audio


def _raw_problem(kind: str, body: bytes) -> Problem | None:
    """What is wrong with bytes of a format that says nothing of itself."""
    for magic, name in _MAGIC.items():
        if body.startswith(magic):
            return "garbage", f"{kind} was asked for and {name} came"
    if _is_text(body):
        return "garbage", f"words came instead of audio: {body[:80].decode(errors='replace')!r}"
    return None


def _odd(body: bytes) -> Problem | None:
    if len(body) % 2:
        return "truncated", f"{len(body)} bytes are not whole 16-bit samples"
    return None


def _is_text(body: bytes) -> bool:
    """Whether it is words in UTF-8, or in another encoding of mostly ASCII letters.

    No audio is: silence is zeros, and the sign of a quiet sample is a byte of 0 or 255.
    """
    codes = np.frombuffer(body, np.uint8)
    is_break = np.isin(codes, (0x09, 0x0A, 0x0D))
    is_printable = ((codes >= 0x20) & (codes < 0x7F)) | is_break
    if len(codes) and is_printable.mean() >= _WORDS_SHARE:
        return True
    if not len(codes) or (((codes < 0x20) & ~is_break) | (codes == 0x7F)).any():
        return False
    try:
        body.decode()
    except UnicodeDecodeError as error:
        # One that is cut within its last letter is still one.
        return error.reason == "unexpected end of data" and error.start > len(body) - 4
    return True


def _noise(samples: NDArray[np.int16]) -> Problem | None:
    """Whether samples are bytes of something else: white noise at full scale."""
    if len(samples) < PCM_RATE_HZ // 10:
        return None
    rms = float(np.sqrt(np.square(samples, dtype=np.float64).mean()))
    crossings = float((np.signbit(samples[1:]) != np.signbit(samples[:-1])).mean())
    if rms > _NOISE_RMS and crossings > _NOISE_CROSSINGS:
        return "garbage", "white noise at full scale: not 16-bit little-endian samples"
    return None


def _mulaw(body: bytes) -> NDArray[np.int16]:
    """G.711 mu-law expanded to 16 bits."""
    code = ~np.frombuffer(body, np.uint8)
    magnitude = (((code & 0x0F).astype(np.int32) << 3) + 0x84) << ((code & 0x70) >> 4)
    magnitude -= 0x84
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)
