"""The tokenizer: a codec on its device, encoding many clips in batches of like lengths."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from server import frames
from server.codec import float32_products
from server.codec_encoder import BatchEncoder, Kernels, Precision
from speech_assets.cores import core_count
from speech_assets.corpus.audio import from_pcm16
from speech_assets.corpus.batches import padded_frames, plan_batches

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from server.codec import Codec
    from server.codec_encoder_shapes import Product, Shape

CPU_BATCH_SAMPLES = 0  # Larger batches are slower: activations outgrow caches (docs/decisions.md).
CUDA_BATCH_SAMPLES = 4_000_000
CUDA_ROUND_FRAMES = 8  # A compiled encoder sees few lengths; masks make the padding harmless.


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How clips are encoded. Only `precision` may change codes: it is in the fingerprint.

    `batch_clips` fixes the clips of a call, whatever their lengths, instead of `batch_samples`;
    `product` is how fused kernels multiply in fp32. `pinned` memory is copied to the device beside
    what it computes; `ahead` batches are launched before the oldest one's codes are asked for.
    """

    batch_samples: int
    compiled: bool = False
    precision: Precision = "fp32"
    threads: int = 1
    kernels: Kernels = "auto"
    product: Product | None = None
    batch_clips: int = 0
    pinned: bool = True
    ahead: int = 2


class Tokenizer:
    """The codec, its batch encoder, and what was measured while encoding."""

    def __init__(
        self, codec: Codec, options: EncodeOptions, shapes: Mapping[str, Shape] | None = None
    ) -> None:
        self.codec = codec
        self.options = options
        self.encoder = BatchEncoder(
            codec,
            compiled=options.compiled,
            precision=options.precision,
            kernels=options.kernels,
            product=options.product,
            shapes=shapes,
        )
        self.device_busy_s = 0.0
        self._lock = threading.Lock()
        on_cuda = codec.device.type == "cuda"
        self._round_frames = CUDA_ROUND_FRAMES if on_cuda else 1
        self._copies = torch.cuda.Stream(codec.device) if on_cuda else None
        # Its work is small and is waited for; in the encoder's stream it stood behind batches.
        self._checks = torch.cuda.Stream(codec.device, priority=-1) if on_cuda else None

    def encode(self, clips: list[NDArray[np.int16]]) -> list[NDArray[np.uint16]]:
        """Codes (frames, 7) of each clip (PCM of 16 bits at 24 kHz), in order.

        Samples become floats on the device: half as many bytes to read, lay out and copy.
        """
        counts = [frames.frame_count(len(clip)) for clip in clips]
        batches = self._plan(counts)
        if self.codec.device.type == "cpu":
            done = self._encode_on_cpu(clips, batches)
        else:
            done = self._encode_on_device(clips, batches)
        codes: dict[int, NDArray[np.uint16]] = {}
        for batch, levels in zip(batches, done, strict=True):
            made = self.encoder.codes(
                levels,
                [counts[clip] for clip in batch],
                lambda row, batch=batch: from_pcm16(clips[batch[row]]),
            )
            codes.update(zip(batch, made, strict=True))
        return [codes[clip] for clip in range(len(clips))]

    @contextlib.contextmanager
    def beside(self) -> Generator[None]:
        """Where another thread computes exactly while clips are being encoded."""
        with contextlib.ExitStack() as stack:
            if self._checks is not None:
                stack.enter_context(torch.cuda.stream(self._checks))
            if self.options.precision == "tf32":
                stack.enter_context(float32_products(tf32=False))
            yield

    def _plan(self, counts: list[int]) -> list[list[int]]:
        if size := self.options.batch_clips:
            order = list(range(len(counts)))
            return [order[at : at + size] for at in range(0, len(order), size)]
        return plan_batches(counts, self.options.batch_samples, round_frames=self._round_frames)

    def _encode_on_cpu(
        self, clips: list[NDArray[np.int16]], batches: list[list[int]]
    ) -> Iterator[list[NDArray[np.int64]]]:
        """Batches side by side, each on one thread: the interpreter is free inside the kernels."""

        def encode(batch: list[int]) -> list[NDArray[np.int64]]:
            host, lengths = self._pad([clips[clip] for clip in batch], pin=False)
            started_s = time.monotonic()
            levels = self.encoder.launch(_samples(host), lengths)
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
        self, clips: list[NDArray[np.int16]], batches: list[list[int]]
    ) -> Iterator[list[NDArray[np.int64]]]:
        """One batch runs while the host prepares the next and unpacks the last."""
        in_flight: deque[_Launched] = deque()
        for batch in batches:
            in_flight.append(self._launch([clips[clip] for clip in batch]))
            if len(in_flight) >= self.options.ahead:
                yield self._collect(in_flight.popleft())
        while in_flight:
            yield self._collect(in_flight.popleft())

    def _launch(self, clips: list[NDArray[np.int16]]) -> _Launched:
        host, lengths = self._pad(clips, pin=self.options.pinned)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream(self.codec.device)
        audio, counts = self._copied(host, lengths, stream)
        begin.record(stream)
        levels = self.encoder.launch(_samples(audio), counts)
        # Asked for here, not when they are wanted: a copy waits for all that was launched before.
        held = [_to_host(level, pin=self.options.pinned) for level in levels]
        end.record(stream)
        return _Launched(held, begin, end)

    def _copied(
        self, host: torch.Tensor, lengths: torch.Tensor | None, stream: torch.cuda.Stream
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The batch on the device, copied beside what `stream` computes if it is pinned."""
        device = self.codec.device
        if not self.options.pinned or self._copies is None:
            return host.to(device), None if lengths is None else lengths.to(device)
        with torch.cuda.stream(self._copies):
            audio = host.to(device, non_blocking=True)
            counts = None if lengths is None else lengths.to(device, non_blocking=True)
        stream.wait_stream(self._copies)
        audio.record_stream(stream)
        if counts is not None:
            counts.record_stream(stream)
        return audio, counts

    def _collect(self, launched: _Launched) -> list[NDArray[np.int64]]:
        launched.end.synchronize()
        self.device_busy_s += launched.begin.elapsed_time(launched.end) / 1000
        return [level.numpy() for level in launched.levels]

    def _pad(
        self, clips: list[NDArray[np.int16]], *, pin: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The batch, int16 and zero-padded, and its frame counts; None when every clip fills it."""
        counts = [frames.frame_count(len(clip)) for clip in clips]
        width = padded_frames(max(counts), self._round_frames)
        size = (len(clips), width * frames.SAMPLES_PER_FRAME)
        host = torch.empty(size, dtype=torch.int16, pin_memory=pin)
        for row, clip in zip(host.numpy(), clips, strict=True):
            row[: len(clip)] = clip
            row[len(clip) :] = 0
        lengths = torch.tensor(counts, pin_memory=pin)
        return host, None if min(counts) == width else lengths


@dataclass(frozen=True, slots=True)
class _Launched:
    levels: list[torch.Tensor]  # On the host, there once `end` has passed.
    begin: torch.cuda.Event
    end: torch.cuda.Event


def _samples(pcm: torch.Tensor) -> torch.Tensor:
    """Float samples of 16-bit ones, exactly those of `from_pcm16`."""
    return pcm.float().mul_(1 / 32768)


def _to_host(level: torch.Tensor, *, pin: bool) -> torch.Tensor:
    """The codes of a level, copied without waiting into pinned memory."""
    host = torch.empty(level.shape, dtype=level.dtype, pin_memory=pin)
    return host.copy_(level, non_blocking=pin)


def default_batch_samples(codec: Codec) -> int:
    """Padded samples of one encoder call that suit the codec's device."""
    return CPU_BATCH_SAMPLES if codec.device.type == "cpu" else CUDA_BATCH_SAMPLES


def encoder_threads() -> int:
    """Clips that the CPU encodes side by side: on half of the cores, the others check and write."""
    return max(1, core_count() // 2)
