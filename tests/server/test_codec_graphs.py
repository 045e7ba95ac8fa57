"""The ring of pinned buffers, by a device that does nothing until somebody waits for it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from server import codec_graphs, frames
from server.codec_graphs import RING_SIZE, GraphCatalogue

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTHS = {1: 3, 2: 5}  # by hop
SIZES = (1, 2, 4)
CPU = torch.device("cpu")


@dataclass
class Device:
    """What CUDA does of what `codec_graphs` asks of it, as late as it may."""

    work: deque[Callable[[], object]] = field(default_factory=deque[Callable[[], object]])
    events: list[Event] = field(default_factory=list["Event"])
    priorities: list[int] = field(default_factory=list[int])
    on_stream: bool = False
    capturing: list[Callable[[], object]] | None = None

    def enqueue(self, work: Callable[[], object]) -> None:
        assert self.on_stream, "launched on the thread's stream, which is the language model's"
        self.work.append(work)

    def drain(self) -> None:
        while self.work:
            self.work.popleft()()

    @contextlib.contextmanager
    def stream(self, _stream: object) -> Generator[None]:
        self.on_stream = True
        yield
        self.on_stream = False

    @contextlib.contextmanager
    def graph(self, graph: Graph, *, pool: object, stream: object) -> Generator[None]:
        self.capturing = graph.steps
        yield
        self.capturing = None

    def new_stream(self, _device: torch.device, *, priority: int = 0) -> SimpleNamespace:
        self.priorities.append(priority)
        return SimpleNamespace(synchronize=self.drain)

    def tensor(self, *shape: int, dtype: torch.dtype, **_where: object) -> Tensor:
        return torch.zeros(*shape, dtype=dtype).as_subclass(Tensor)

    def torch(self) -> SimpleNamespace:
        """What stands where `codec_graphs` has torch."""
        cuda = SimpleNamespace(
            Stream=self.new_stream,
            Event=lambda *, blocking=False: Event(self, blocking),
            CUDAGraph=lambda: Graph(self),
            stream=self.stream,
            graph=self.graph,
            synchronize=lambda _device: self.drain(),
        )
        return SimpleNamespace(
            cuda=cuda,
            zeros=self.tensor,
            empty=self.tensor,
            from_numpy=torch.from_numpy,
            int64=torch.int64,
            int16=torch.int16,
        )

    def compute(self, hop: int, staged: Any) -> Any:
        """What is captured: called again whenever the graph is replayed."""
        plain = staged.as_subclass(torch.Tensor)
        if self.capturing is None:
            return pcm(hop, plain)
        return lambda: pcm(hop, plain)


class Tensor(torch.Tensor):
    """A pinned tensor, or one on the device (the last of `DEVICES`)."""

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        plain, device = self.as_subclass(torch.Tensor), DEVICES[-1]
        if device.capturing is not None:
            device.capturing.append(lambda: plain.copy_(source()))
        elif non_blocking:
            device.enqueue(lambda: plain.copy_(source.as_subclass(torch.Tensor)))
        else:
            plain.copy_(source)
        return self


@dataclass
class Graph:
    device: Device
    steps: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])

    def replay(self) -> None:
        self.device.enqueue(lambda: [step() for step in self.steps])

    def pool(self) -> str:
        return "pool"


@dataclass
class Event:
    device: Device
    blocking: bool
    done: bool = True

    def __post_init__(self) -> None:
        self.device.events.append(self)

    def record(self, _stream: object) -> None:
        self.done = False
        self.device.enqueue(lambda: setattr(self, "done", True))

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        while not self.done:
            self.device.work.popleft()()


DEVICES: list[Device] = []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    DEVICES[:] = [made]
    monkeypatch.setattr(codec_graphs, "torch", made.torch())
    return made


def pcm(hop: int, staged: torch.Tensor) -> torch.Tensor:
    """Samples that tell which row they are of."""
    sums = (staged.sum(1, keepdim=True) % 30_000).to(torch.int16)
    return sums.expand(-1, hop * frames.SAMPLES_PER_FRAME)


def calls(count: int) -> list[tuple[int, NDArray[np.int64]]]:
    """Launches of both hops and of 1 to 4 rows, no two alike."""
    draw = np.random.default_rng(4)
    return [
        (hop, draw.integers(1, 9_000, (1 + number % 4, WIDTHS[hop])))
        for number, hop in enumerate(draw.integers(1, 3, count).tolist())
    ]


def test_no_buffer_is_written_while_the_device_may_still_copy_it(device: Device) -> None:
    catalogue = GraphCatalogue(WIDTHS, SIZES, device.compute, CPU)
    asked = calls(3 * RING_SIZE)
    tickets = [catalogue.launch(hop, staged) for hop, staged in asked]
    # As far as nobody had to wait, nothing is done: what went in is still to be copied.
    assert [ticket.ready() for ticket in tickets[-RING_SIZE:]] == [False] * RING_SIZE
    assert all(ticket.ready() for ticket in tickets[:-RING_SIZE])
    for ticket, (hop, staged) in zip(tickets, asked, strict=True):
        expected = pcm(hop, torch.from_numpy(staged)).numpy()
        np.testing.assert_array_equal(ticket.result(), expected)
        np.testing.assert_array_equal(ticket.result(), expected)  # Kept, whatever came later.


def test_who_looks_at_a_decode_does_not_wait_for_it(device: Device) -> None:
    catalogue = GraphCatalogue(WIDTHS, SIZES, device.compute, CPU)
    (hop, staged), *_ = calls(1)
    ticket = catalogue.launch(hop, staged)
    assert not ticket.ready()
    assert device.work
    device.drain()
    assert ticket.ready()


def test_decodes_have_a_stream_that_goes_first_and_events_that_are_slept_for(
    device: Device,
) -> None:
    GraphCatalogue(WIDTHS, SIZES, device.compute, CPU)
    assert device.priorities == [-1]
    assert [event.blocking for event in device.events] == [True] * RING_SIZE
