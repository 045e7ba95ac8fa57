"""How the clips of the embedded corpus are kept: mostly Opus, a few in other formats on purpose."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import av
import av.codec.context
import numpy as np
import soundfile
import soxr

from speech_assets.corpus.embedded.clips import PROMPT_RATE_HZ, SONNET_RATE_HZ
from speech_assets.corpus.embedded.packages import SONNET
from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from speech_assets.corpus.embedded.clips import Clip, Pcm


@dataclass(frozen=True, slots=True)
class Storage:
    """A format of `audio.bytes`.

    `subtype` is libsndfile's, for WAV and FLAC; `bit_rate`, in bits per second, is Opus'; `level`,
    from 0 (largest) to 1 (smallest), is libsndfile's for Vorbis and MP3.
    """

    container: Literal["opus", "vorbis", "mp3", "flac", "wav"]
    rate_hz: int
    channels: int = 1
    subtype: str = ""
    bit_rate: int = 0
    level: float = 0.0

    @property
    def suffix(self) -> str:
        """File suffix of the container."""
        return ".ogg" if self.container == "vorbis" else f".{self.container}"

    @property
    def label(self) -> str:
        """What the card calls it."""
        setting = {
            "opus": f"{self.bit_rate / 1000:g} kbit/s",
            "vorbis": f"level {self.level:g}",
            "mp3": f"level {self.level:g}",
        }.get(self.container, self.subtype)
        channels = ("mono", "stereo")[self.channels - 1]
        return f"{self.container}, {self.rate_hz / 1000:g} kHz, {channels}, {setting}"


# Least of a stored clip against the samples it was made from. The least of Opus is 15 dB, in
# "sixteenth", which is mostly hiss; a format that failed had -6 dB.
MIN_SNR_DB = 10.0

# The bit rate is what 8 MB leave: 24 minutes at 38 kbit/s are 6.9 MB, the other rows 0.8 MB.
PROMPT_STORAGE = Storage("opus", PROMPT_RATE_HZ, bit_rate=38_000)
# The sonnet's recording reaches 11 kHz, which 24 kHz holds.
SONNET_STORAGE = Storage("opus", 24_000, bit_rate=64_000)
# Real clips in other clothes, so that every reader meets more than one format. The three at 8 kHz
# are the prompts that have nothing above 3.4 kHz to lose.
STORED_OTHERWISE = {
    "allison-0012-astcc-followed-by-the-pound-key": Storage("opus", 8_000, bit_rate=24_000),
    "allison-0113-confbridge-unlocked": Storage("flac", 16_000, subtype="PCM_16"),
    "allison-0162-digits-7": Storage("wav", 16_000, subtype="FLOAT"),
    "allison-0255-followme-call-from": Storage("flac", 24_000, subtype="PCM_16"),
    "allison-0258-followme-pls-hold-while-try": Storage("mp3", 16_000, level=0.4),
    "allison-0263-goodbye": Storage("wav", 16_000, subtype="PCM_U8"),
    "allison-0264-hello-world": Storage("flac", 16_000, subtype="PCM_24"),
    "allison-0337-minute": Storage("wav", 8_000, subtype="PCM_16"),
    "allison-0342-one-moment-please": Storage("wav", 16_000, subtype="PCM_24"),
    "allison-0403-second": Storage("wav", 8_000, subtype="ULAW"),
    "allison-0500-vm-msginstruct": Storage("vorbis", 16_000, level=0.6),
    "librivox-sense-0880-he-was-not-an-ill": Storage("wav", 16_000, subtype="PCM_16"),
    "librivox-sonnet-1-00-one": Storage("flac", SONNET_RATE_HZ, 2, subtype="PCM_16"),
    "librivox-sonnet-1-03-but-thou-contracted-to": Storage("vorbis", SONNET_RATE_HZ, 2, level=0.5),
    "librivox-sonnet-1-08-to-eat-the-worlds": Storage("mp3", SONNET_RATE_HZ, 2, level=0.3),
}


def storage_of(clip: Clip) -> Storage:
    """How `clip` is kept."""
    usual = SONNET_STORAGE if clip.source == SONNET.name else PROMPT_STORAGE
    return STORED_OTHERWISE.get(clip.id, usual)


def convert(clip: Clip, storage: Storage) -> Pcm:
    """Samples of `clip` at the rate and in the channels of `storage`; as they are if both agree."""
    pcm = clip.pcm
    if storage.channels < pcm.shape[1]:
        pcm = np.rint(pcm.mean(axis=1, keepdims=True)).astype(np.int16)
    if storage.rate_hz != clip.rate_hz:
        resampled = soxr.resample(pcm / 32768.0, clip.rate_hz, storage.rate_hz, quality="VHQ")
        pcm = np.clip(np.rint(resampled * 32768.0), -32768, 32767).astype(np.int16)
    return pcm


def encode(pcm: Pcm, storage: Storage) -> bytes:
    """An audio file of `pcm`, int16 of shape (samples, channels). Same samples, same bytes."""
    if storage.container == "opus":
        return _encode_opus(pcm, storage)
    # As floats where the format is no integer one: libsndfile 1.2.2 makes noise of 16-bit stereo in
    # MP3, and writes integers into a float file as they are, 32767.0 for full scale.
    integers = storage.container in ("wav", "flac") and storage.subtype != "FLOAT"
    out = io.BytesIO()
    soundfile.write(
        out,
        pcm if integers else pcm / np.float32(32768),
        storage.rate_hz,
        format="OGG" if storage.container == "vorbis" else storage.container.upper(),
        subtype="VORBIS" if storage.container == "vorbis" else storage.subtype or None,
        compression_level=None if storage.subtype else storage.level,
    )
    if storage.container == "vorbis":
        return with_ogg_serial(out.getvalue(), 1)
    return without_peak_time(out.getvalue()) if storage.subtype == "FLOAT" else out.getvalue()


def check_stored(data: bytes, pcm: Pcm, storage: Storage, where: str) -> None:
    """Decode `data` again and compare it with the `pcm` that it was made from.

    Raises:
        CorpusError: other samples than were given: another number, or under MIN_SNR_DB.
    """
    got, rate_hz = soundfile.read(io.BytesIO(data), always_2d=True)
    wanted = pcm / 32768.0
    if rate_hz != storage.rate_hz or got.shape != wanted.shape:
        raise CorpusError(
            f"{where} as {storage.label} comes back as {got.shape} samples at {rate_hz} Hz, was "
            f"{wanted.shape} at {storage.rate_hz} Hz; choose another format for it"
        )
    signal, noise = float(np.sum(wanted**2)), float(np.sum((wanted - got) ** 2))
    if signal < noise * 10 ** (MIN_SNR_DB / 10):
        raise CorpusError(
            f"{where} as {storage.label} comes back with {10 * np.log10(signal / noise):.1f} dB of "
            f"SNR, must be {MIN_SNR_DB:g} dB or more; choose another format for it"
        )


def _encode_opus(pcm: Pcm, storage: Storage) -> bytes:
    """Ogg Opus through FFmpeg, which takes a bit rate and, if bit-exact, no random serial."""
    out = io.BytesIO()
    layout = ("mono", "stereo")[storage.channels - 1]
    with av.open(out, "w", format="ogg", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libopus", rate=storage.rate_hz, layout=layout)
        stream.bit_rate = storage.bit_rate
        stream.codec_context.flags |= av.codec.context.Flags.bitexact
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout=layout)
        frame.sample_rate, frame.pts = storage.rate_hz, 0
        for packet in itertools.chain(stream.encode(frame), stream.encode(None)):
            container.mux(packet)
    return out.getvalue()


def with_ogg_serial(data: bytes, serial: int) -> bytes:
    """`data`, Ogg, with `serial` in every page, where libsndfile has a random one (RFC 3533, 6)."""
    out = bytearray(data)
    at = 0
    while at < len(out):
        segments = out[at + 26]
        end = at + 27 + segments + sum(out[at + 27 : at + 27 + segments])
        out[at + 14 : at + 18] = serial.to_bytes(4, "little")
        out[at + 22 : at + 26] = bytes(4)
        out[at + 22 : at + 26] = _ogg_crc(out[at:end]).to_bytes(4, "little")
        at = end
    return bytes(out)


def without_peak_time(data: bytes) -> bytes:
    """`data`, a float WAV of libsndfile, with 0 for the time of day in its PEAK chunk."""
    at = data.index(b"PEAK") + 12
    return data[:at] + bytes(4) + data[at + 4 :]


def _ogg_crc(page: bytes | bytearray) -> int:
    """CRC-32 of polynomial 0x04C11DB7, most significant bit first, from 0."""
    crc = 0
    for byte in page:
        crc = ((crc << 8) & 0xFFFFFFFF) ^ _CRC_TABLE[(crc >> 24) ^ byte]
    return crc


def _crc_entry(byte: int) -> int:
    crc = byte << 24
    for _ in range(8):
        crc = ((crc << 1) ^ 0x04C11DB7 if crc & 0x80000000 else crc << 1) & 0xFFFFFFFF
    return crc


_CRC_TABLE = [_crc_entry(byte) for byte in range(256)]
