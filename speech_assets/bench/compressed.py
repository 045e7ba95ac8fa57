"""Compressed audio, decoded packet by packet."""

from __future__ import annotations

import io
from bisect import bisect_left
from typing import TYPE_CHECKING

import av
import numpy as np
from av.error import FFmpegError

from speech_assets.bench.samples import PCM_RATE_HZ, Audio, nothing
from speech_assets.bench.stream_end import cut_off, ogg_page_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from speech_assets.bench.samples import Problem

_DEMUXERS = {"mp3": "mp3", "opus": "ogg", "flac": "flac", "aac": "aac"}


def decode_compressed(kind: str, body: bytes, ends: Sequence[int]) -> Audio:
    """The samples of mp3, opus (in Ogg), flac or aac (ADTS); `ends`: where each arrival ended."""
    pages = ogg_page_ends(body) if kind == "opus" else []
    blocks: list[NDArray[np.int16]] = []
    playable = [0] * len(ends)
    rate_hz = PCM_RATE_HZ
    problem: Problem | None = None
    last = b""
    try:
        # Titles may be of any bytes.
        with av.open(
            io.BytesIO(body), "r", format=_DEMUXERS[kind], metadata_errors="replace"
        ) as container:
            stream = container.streams.audio[0]
            rate_hz = stream.codec_context.sample_rate or rate_hz
            resampler = av.AudioResampler(format="s16", layout="mono")
            end = 0
            for packet in container.demux(stream):
                if packet.size:
                    last = bytes(packet)
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
        return nothing(ends, problem or ("garbage", f"no {kind} audio in {len(body)} bytes"))
    samples = np.concatenate(blocks)
    if problem is None and (why := cut_off(kind, body, last, len(samples))):
        problem = ("truncated", f"the {kind} stream {why}")
    return Audio(samples, rate_hz, tuple(playable), problem)
