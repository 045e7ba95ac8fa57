"""Captured CUDA graphs of one function at a small catalogue of hops and batch sizes.

Every shape that serving can meet is captured before the first request, largest first and from one
memory pool; nothing runs eagerly afterwards. Inputs and outputs pass through a ring of pinned
buffers on a stream of its own (`codec_stream`): no pageable copy, and nothing waits for another
stream. A pinned buffer is written again only after the event behind its last copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from server import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

RING_SIZE = 16
"""Calls in flight before a launch waits for the oldest, 2 MiB of pinned memory each. Two ticks are
in flight, each of one to three hops whose rows take one to three calls (`server.planner`)."""
_FIRST = -1  # A stream's priority: before the language model's kernels, at 0.
_EAGER_RUNS = 2  # Before a capture: cuDNN and cuBLAS choose kernels and take workspaces then.


def codec_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream for decodes, whichever thread or process launches them; waits for all before it.

    Not the language model's stream, also where one thread launches both: on that a decode would
    run between two steps and hold up the next one, while on another it fills what a step leaves
    idle. Not the default stream either, which is what other threads launch on. A decode is short
    and somebody's audio, so its kernels go first. Besides, torch gives the streams of a priority
    out in turn, 32 of them, and vLLM's are of priority 0: none can be this one.
    """
    stream = torch.cuda.Stream(device, priority=_FIRST)
    # What was made so far (weights too) was made on other streams.
    torch.cuda.synchronize(device)
    return stream


@dataclass(slots=True)
class _Buffers:
    staged: Tensor  # pinned int64
    samples: Tensor  # pinned int16
    done: torch.cuda.Event
    owner: GraphTicket | None = None


class GraphTicket:
    """Samples of one replay: `ready` tells without waiting, `result` waits and keeps them."""

    def __init__(self, buffers: _Buffers, samples: Tensor) -> None:
        self._buffers: _Buffers | None = buffers
        self._pinned = samples
        self._kept: NDArray[np.int16] | None = None

    def ready(self) -> bool:
        """Whether `result` returns at once."""
        return self._buffers is None or self._buffers.done.query()

    def result(self) -> NDArray[np.int16]:
        """int16 of shape (rows, 2,048 * hop), the caller's own."""
        if self._kept is None:
            assert self._buffers is not None
            self._buffers.done.synchronize()
            self._kept = self._pinned.numpy().copy()
            self._buffers.owner = None
            self._buffers = None
        return self._kept


class GraphCatalogue:
    """One graph for each hop and batch size, all captured on construction.

    Args:
        widths: for each hop, the length of a staged row (int64).
        batch_sizes: ascending; a launch takes the smallest that holds its rows.
        compute: (hop, staged rows on the device) -> int16 of shape (rows, 2,048 * hop).
        device: a CUDA device.
    """

    def __init__(
        self,
        widths: Mapping[int, int],
        batch_sizes: Sequence[int],
        compute: Callable[[int, Tensor], Tensor],
        device: torch.device,
    ) -> None:
        self._sizes = tuple(batch_sizes)
        largest, longest = self._sizes[-1], max(widths) * frames.SAMPLES_PER_FRAME
        # A row of zeros ends at latent 0: all of it is masked, so padding costs time and no care.
        self._inputs = {
            hop: torch.zeros(largest, width, dtype=torch.int64, device=device)
            for hop, width in widths.items()
        }
        self._output = torch.empty(largest * longest, dtype=torch.int16, device=device)
        self._stream = codec_stream(device)  # Last: it waits for what was made so far.
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        pool = None
        for hop, size in sorted(
            ((hop, size) for hop in widths for size in self._sizes), key=_work, reverse=True
        ):
            staged, output = self._inputs[hop][:size], self._samples(self._output, hop, size)
            with torch.cuda.stream(self._stream):
                for _ in range(_EAGER_RUNS):
                    compute(hop, staged)
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=self._stream):
                output.copy_(compute(hop, staged))
            pool = pool or graph.pool()
            self._graphs[hop, size] = graph
        self._ring = [
            _Buffers(
                torch.empty(largest * max(widths.values()), dtype=torch.int64, pin_memory=True),
                torch.empty(largest * longest, dtype=torch.int16, pin_memory=True),
                torch.cuda.Event(blocking=True),  # Who waits sleeps; by default it would spin.
            )
            for _ in range(RING_SIZE)
        ]
        self._next = 0

    def launch(self, hop: int, staged: NDArray[np.int64]) -> GraphTicket:
        """Enqueue the decode of staged rows (at most the largest size) and return at once."""
        count = len(staged)
        size = next(size for size in self._sizes if size >= count)
        buffers = self._ring[self._next]
        self._next = (self._next + 1) % len(self._ring)
        if buffers.owner is not None:
            buffers.owner.result()  # A late reader's samples move out before they are overwritten.
        rows = buffers.staged[: size * staged.shape[1]].view(size, -1)
        rows[:count].copy_(torch.from_numpy(staged))
        rows[count:].zero_()
        samples = self._samples(buffers.samples, hop, count)
        with torch.cuda.stream(self._stream):
            self._inputs[hop][:size].copy_(rows, non_blocking=True)
            self._graphs[hop, size].replay()
            samples.copy_(self._samples(self._output, hop, count), non_blocking=True)
            buffers.done.record(self._stream)
        buffers.owner = GraphTicket(buffers, samples)
        return buffers.owner

    @staticmethod
    def _samples(storage: Tensor, hop: int, rows: int) -> Tensor:
        width = hop * frames.SAMPLES_PER_FRAME
        return storage[: rows * width].view(rows, width)


def _work(shape: tuple[int, int]) -> int:
    return shape[0] * shape[1]
