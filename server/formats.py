"""The audio formats that clients may ask for: their types, codecs and settings, each owned here.

Settings are those with which the first bytes of a stream come at once and nothing has to be mended
in bytes that have gone out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from av.codec import codecs_available

from server.frames import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ResponseFormat = Literal["pcm", "wav", "mp3", "opus", "aac", "flac", "mulaw"]

_LAME_SAMPLES = 576  # A frame of MPEG-2 layer III; LAME holds up to four of them back.
_AAC_SAMPLES = 1_024
_FLAC_SAMPLES = 512  # The default, 2,304, is longer than a first chunk.
_OPUS_MS = 20
TELEPHONE_RATE_HZ = 8_000


@dataclass(frozen=True, slots=True)
class Coding:
    """How FFmpeg makes a format.

    Attributes:
        codec, container: FFmpeg's names of encoder and muxer.
        sample_format: FFmpeg's name of the samples that the encoder takes.
        bit_rate: bits a second; None where the codec has no choice.
        codec_options, stream_options: of the encoder, and of the muxer of a stream.
        file_options: of the muxer of a whole file, whose header is written again at its end.
    """

    codec: str
    container: str
    sample_format: str = "s16"
    bit_rate: int | None = None
    codec_options: Mapping[str, str] = field(default_factory=dict[str, str])
    stream_options: Mapping[str, str] = field(default_factory=dict[str, str])
    file_options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """One format.

    Attributes:
        content_type: what HTTP calls it.
        rate_hz: of what a decoder gives.
        is_raw: without any header, so that a client must be told rate and channels.
        held_s: most audio that its encoder holds back within a stream, in seconds.
        coding: how FFmpeg makes it; None for what needs no encoder.
    """

    name: ResponseFormat
    content_type: str
    rate_hz: int = SAMPLE_RATE_HZ
    is_raw: bool = False
    held_s: float = 0.0
    coding: Coding | None = None


FORMATS: Mapping[ResponseFormat, AudioFormat] = {
    each.name: each
    for each in (
        AudioFormat("pcm", "audio/pcm", is_raw=True),
        AudioFormat("wav", "audio/wav"),
        AudioFormat(
            "mp3",
            "audio/mpeg",
            held_s=4 * _LAME_SAMPLES / SAMPLE_RATE_HZ,
            coding=Coding(
                codec="libmp3lame",
                container="mp3",
                sample_format="s16p",
                bit_rate=64_000,
                # Faster than LAME's default; its decoded speech is as near to the original.
                codec_options={"compression_level": "7"},
                # Xing's frame tells the length, which a stream does not know when it is sent.
                stream_options={"write_xing": "0", "id3v2_version": "0"},
                file_options={"id3v2_version": "0"},
            ),
        ),
        AudioFormat(
            "opus",
            # RFC 7845; audio/opus is RTP's.
            "audio/ogg; codecs=opus",
            rate_hz=48_000,
            held_s=_OPUS_MS / 1e3,
            coding=Coding(
                codec="libopus",
                container="ogg",
                bit_rate=48_000,
                codec_options={"frame_duration": str(_OPUS_MS), "compression_level": "5"},
                # A page a frame, in microseconds: the default sends nothing for a second.
                stream_options={"page_duration": str(1_000 * _OPUS_MS)},
                # Ogg's serial number is random, so that streams can follow one another in one
                # file; with this it is not, and the same speech is the same bytes.
                file_options={"fflags": "bitexact"},
            ),
        ),
        AudioFormat(
            "aac",
            "audio/aac",
            held_s=2 * _AAC_SAMPLES / SAMPLE_RATE_HZ,
            coding=Coding(
                codec="aac",
                container="adts",
                sample_format="fltp",
                bit_rate=64_000,
                codec_options={"aac_coder": "fast"},
            ),
        ),
        AudioFormat(
            "flac",
            "audio/flac",
            held_s=_FLAC_SAMPLES / SAMPLE_RATE_HZ,
            coding=Coding(
                codec="flac",
                container="flac",
                codec_options={"frame_size": str(_FLAC_SAMPLES)},
                # Without it 8 KB of nothing come before the first sample.
                stream_options={"metadata_header_padding": "0"},
                file_options={"metadata_header_padding": "0"},
            ),
        ),
        AudioFormat(
            "mulaw",
            # RFC 2046's name of exactly this: 8-bit mu-law, mono, 8 kHz.
            "audio/basic",
            rate_hz=TELEPHONE_RATE_HZ,
            is_raw=True,
            held_s=0.004,  # Of the resampler.
            coding=Coding(codec="pcm_mulaw", container="mulaw"),
        ),
    )
}
assert tuple(FORMATS) == get_args(ResponseFormat)

DEFAULT_FORMAT: ResponseFormat = "wav"


def available_formats(codecs: Collection[str]) -> tuple[ResponseFormat, ...]:
    """The formats that can be made where FFmpeg has these codecs."""
    return tuple(
        name for name, each in FORMATS.items() if not each.coding or each.coding.codec in codecs
    )


# An FFmpeg that was not built with LAME or Opus makes no mp3 or opus.
AVAILABLE_FORMATS = available_formats(codecs_available)
