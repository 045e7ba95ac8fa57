"""The tokenizer: a codec on its device, encoding many clips in batches of like lengths."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from server import frames
from server.codec_encoder import BatchEncoder, Precision, split_levels
from speech_assets.cores import core_count
from speech_assets.corpus.batches import padded_frames, plan_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from server.codec import Codec

CPU_BATCH_SAMPLES = 0  # Larger batches are slower: activations outgrow caches (docs/decisions.md).
CUDA_BATCH_SAMPLES = 4_000_000
CUDA_ROUND_FRAMES = 8  # A compiled encoder sees few lengths; masks make the padding harmless.


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How clips are encoded. Only `precision` may change codes: it is in the fingerprint."""

    batch_samples: int
    compiled: bool = False
    precision: Precision = "fp32"
    threads: int = 1


class Tokenizer:
    """The codec, its batch encoder, and what was measured while encoding."""

    def __init__(self, codec: Codec, options: EncodeOptions) -> None:
        self.codec = codec
        self.options = options
        self.encoder = BatchEncoder(
            codec,
            compiled=options.compiled,
            precision=options.precision,
        )
        self.device_busy_s = 0.0
        self._lock = threading.Lock()
        self._round_frames = 1 if codec.device.type == "cpu" else CUDA_ROUND_FRAMES

    def encode(self, clips: list[NDArray[np.float32]]) -> list[NDArray[np.uint16]]:
        """Codes (frames, 7) of each clip, in order."""
        counts = [frames.frame_count(len(clip)) for clip in clips]
        batches = plan_batches(counts, self.options.batch_samples, round_frames=self._round_frames)
        if self.codec.device.type == "cpu":
            done = self._encode_on_cpu(clips, batches)
        else:
            done = self._encode_on_device(clips, batches)
        codes: dict[int, NDArray[np.uint16]] = {}
        for batch, levels in zip(batches, done, strict=True):
            split = split_levels(levels, [counts[clip] for clip in batch])
            codes.update(zip(batch, split, strict=True))
        return [codes[clip] for clip in range(len(clips))]

    def _encode_on_cpu(
        self, clips: list[NDArray[np.float32]], batches: list[list[int]]
    ) -> Iterator[list[NDArray[np.int64]]]:
        """Batches side by side, each on one thread: the interpreter is free inside the kernels."""

        def encode(batch: list[int]) -> list[NDArray[np.int64]]:
            host, lengths = self._pad([clips[clip] for clip in batch], pin=False)
            started_s = time.monotonic()
            levels = self.encoder.launch(host, lengths)
            seconds = time.monotonic() - started_s
            with self._lock:
                self.device_busy_s += seconds / self.options.threads
            return [level.numpy() for level in levels]

        if self.options.threads == 1:
            yield from map(encode, batches)
            return
        with ThreadPoolExecutor(self.options.threads, "encode") as pool:
            yield from pool.map(encode, batches)

    def _encode_on_device(
        self, clips: list[NDArray[np.float32]], batches: list[list[int]]
    ) -> Iterator[list[NDArray[np.int64]]]:
        """One batch runs while the host prepares the next and unpacks the last."""
        in_flight: deque[_Launched] = deque()
        for batch in batches:
            in_flight.append(self._launch([clips[clip] for clip in batch]))
            if len(in_flight) > 1:
                yield self._collect(in_flight.popleft())
        while in_flight:
            yield self._collect(in_flight.popleft())

    def _launch(self, clips: list[NDArray[np.float32]]) -> _Launched:
        host, lengths = self._pad(clips, pin=True)
        device = self.codec.device
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        levels = self.encoder.launch(
            host.to(device, non_blocking=True),
            None if lengths is None else lengths.to(device, non_blocking=True),
        )
        end.record()
        return _Launched(levels, begin, end)

    def _collect(self, launched: _Launched) -> list[NDArray[np.int64]]:
        levels = [level.cpu().numpy() for level in launched.levels]
        self.device_busy_s += launched.begin.elapsed_time(launched.end) / 1000
        return levels

    def _pad(
        self, clips: list[NDArray[np.float32]], *, pin: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The batch, zero-padded, and its frame counts; None when every clip fills it."""
        counts = [frames.frame_count(len(clip)) for clip in clips]
        width = padded_frames(max(counts), self._round_frames)
        host = torch.zeros(len(clips), width * frames.SAMPLES_PER_FRAME, pin_memory=pin)
        for row, clip in zip(host, clips, strict=True):
            row[: len(clip)] = torch.from_numpy(clip)
        return host, None if min(counts) == width else torch.tensor(counts)


@dataclass(frozen=True, slots=True)
class _Launched:
    levels: list[torch.Tensor]
    begin: torch.cuda.Event
    end: torch.cuda.Event


def default_batch_samples(codec: Codec) -> int:
    """Padded samples of one encoder call that suit the codec's device."""
    return CPU_BATCH_SAMPLES if codec.device.type == "cpu" else CUDA_BATCH_SAMPLES


def encoder_threads() -> int:
    """Clips that the CPU encodes side by side: on half of the cores, the others check and write."""
    return max(1, core_count() // 2)
