"""One stream's PCM as the bytes of a format: samples in, bytes out, and an end.

pcm and wav are made here, all else by FFmpeg through PyAV. A stream's muxer writes into a sink that
cannot seek, so that it never goes back to mend bytes that have gone out; a whole file's can, so
that its header tells the true length.
"""

from __future__ import annotations

import io
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, cast

import av
import numpy as np

from server.formats import FORMATS
from server.frames import SAMPLE_RATE_HZ
from server.wav import BYTES_PER_SAMPLE, wav_header

if TYPE_CHECKING:
    from av import AudioStream
    from av.container import OutputContainer

    from server.formats import AudioFormat, Coding, ResponseFormat

_TICK = Fraction(1, SAMPLE_RATE_HZ)


class Encoder(Protocol):
    """Bytes of one stream or file. Not to be used on two threads at once."""

    @property
    def playable(self) -> int:
        """Samples, at 24 kHz, that a player of the bytes given out so far can play."""
        ...

    def push(self, pcm: bytes) -> bytes:
        """The bytes (maybe none) that follow from these: s16le, 24 kHz, mono."""
        ...

    def end(self) -> bytes:
        """The rest, headers included if nothing came before; a whole file."""
        ...

    def close(self) -> None:
        """Free everything; what was not given out is dropped. Harmless when it has ended."""
        ...


def encoder_of(name: ResponseFormat, *, whole: bool = False) -> Encoder:
    """An encoder of the format; of a `whole` file the bytes all come at its end."""
    chosen = FORMATS[name]
    if chosen.coding is None:
        return _PlainEncoder(with_header=name == "wav", whole=whole)
    return _CodecEncoder(chosen, chosen.coding, whole=whole)


class _PlainEncoder:
    """pcm and wav."""

    def __init__(self, *, with_header: bool, whole: bool) -> None:
        self.playable = 0
        self._with_header = with_header
        self._whole = whole
        self._head = wav_header() if with_header and not whole else b""
        self._kept: list[bytes] = []

    def push(self, pcm: bytes) -> bytes:
        if self._whole:
            self._kept.append(pcm)
            return b""
        self.playable += len(pcm) // BYTES_PER_SAMPLE
        head, self._head = self._head, b""
        return head + pcm

    def end(self) -> bytes:
        if not self._whole:
            head, self._head = self._head, b""
            return head
        audio = b"".join(self._kept)
        self.close()
        self.playable = len(audio) // BYTES_PER_SAMPLE
        return (wav_header(len(audio)) if self._with_header else b"") + audio

    def close(self) -> None:
        self._kept = []


class _Sink:
    """Where a muxer writes to. PyAV looks for `seek`: without it, it takes this for a pipe."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False  # PyAV writes no trailer into what is closed.

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


class _CodecEncoder:
    """A format that FFmpeg makes."""

    def __init__(self, chosen: AudioFormat, coding: Coding, *, whole: bool) -> None:
        self._file = io.BytesIO() if whole else None
        self._sink = _Sink()
        container = av.open(
            self._file or self._sink,
            "w",
            format=coding.container,
            container_options=dict(coding.file_options if whole else coding.stream_options),
        )
        # Opus is heard at 48 kHz whatever it is made from; all others as their samples are.
        rate_hz = min(chosen.rate_hz, SAMPLE_RATE_HZ)
        stream = cast(
            "AudioStream",
            container.add_stream(
                coding.codec,
                rate=rate_hz,
                layout="mono",
                format=coding.sample_format,
                options=dict(coding.codec_options),
            ),
        )
        if coding.bit_rate is not None:
            stream.bit_rate = coding.bit_rate
        self._container: OutputContainer | None = container
        self._stream: AudioStream | None = stream
        self._taken = 0
        self._given_s = Fraction(0)

    @property
    def playable(self) -> int:
        """Samples at 24 kHz. What decoders put before the first sample is played as well."""
        return int(self._given_s * SAMPLE_RATE_HZ)

    def push(self, pcm: bytes) -> bytes:
        samples = np.frombuffer(pcm, "<i2").astype(np.int16, copy=False)
        if not len(samples):
            return b""
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE_HZ
        frame.time_base = _TICK
        frame.pts = self._taken
        self._taken += len(samples)
        self._mux(frame)
        return self._sink.take()

    def end(self) -> bytes:
        if not self._taken:
            # FFmpeg's encoders are opened by their first samples; a muxer needs an open one.
            self.push(bytes(BYTES_PER_SAMPLE))
        self._mux(None)
        if self._container is not None:
            self._container.close()  # Ogg's last page is written by its trailer.
        rest = self._file.getvalue() if self._file else self._sink.take()
        self.close()
        return rest

    def close(self) -> None:
        self._sink.closed = True
        if self._file:
            self._file.close()
        if self._container is not None:
            # With the sink closed this writes nothing.
            self._container.close()
        self._container = None
        self._stream = None

    def _mux(self, frame: av.AudioFrame | None) -> None:
        if self._container is None or self._stream is None:
            raise ValueError("the encoder has ended; each is of one stream")
        for packet in self._stream.codec_context.encode(frame):
            if packet.duration and packet.time_base:
                self._given_s += packet.duration * packet.time_base
            self._container.mux(packet)
