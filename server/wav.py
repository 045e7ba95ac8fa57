"""The WAV header of the server's audio: 16-bit PCM, mono, 24 kHz."""

from __future__ import annotations

import struct

from server.frames import SAMPLE_RATE_HZ

CHANNELS = 1
BYTES_PER_SAMPLE = 2
HEADER_BYTES = 44
UNKNOWN_SIZE = 0xFFFFFFFF  # What players take for "until the stream ends"; OpenAI sends the same.


def wav_header(data_bytes: int | None = None) -> bytes:
    """The 44 bytes before `data_bytes` of PCM; None when the length is not known yet (streamed).

    Raises:
        ValueError: more data than the header's 32 bits can tell (12 hours).
    """
    if data_bytes is None:
        riff_size = data_size = UNKNOWN_SIZE
    else:
        # The chunk's size leaves out the 8 bytes of "RIFF" and of itself.
        riff_size, data_size = HEADER_BYTES - 8 + data_bytes, data_bytes
        if riff_size >= UNKNOWN_SIZE:
            raise ValueError(f"{data_bytes} bytes do not fit into a WAV file; stream them instead")
    frame_bytes = CHANNELS * BYTES_PER_SAMPLE
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", riff_size, b"WAVE"),
        *(b"fmt ", 16, 1, CHANNELS, SAMPLE_RATE_HZ, SAMPLE_RATE_HZ * frame_bytes, frame_bytes),
        *(8 * BYTES_PER_SAMPLE, b"data", data_size),
    )
