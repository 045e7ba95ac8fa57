"""Processes that make speech shards side by side, and the shards as they become whole."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resources import work
from resources.errors import WorkError
from speech_assets.work.speech_shards import WRITERS

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from resources.store import Store
    from resources.work import WorkProcess
    from speech_assets.corpus.shards import Shard

MODULE = "speech_assets.work.speech"
LOOK_EVERY_S = 0.02
_MADE = "shard: shard "  # A line of each that is made; which they are is seen in the store.
# A process makes its shards in order, but so many of them are stored side by side.
_NEXT = WRITERS + 1


@dataclass(frozen=True, slots=True)
class Maker:
    """A work process of `speech` and those of its shards that were not whole yet, in order."""

    process: WorkProcess
    left: list[Shard]


class SpeechMakers:
    """The shards of `makers` as they become whole, each once; any thread may take them."""

    def __init__(self, store: Store, makers: Sequence[Maker]) -> None:
        self.makers = makers
        self._store = store
        self._lock = threading.Lock()
        self._whole: deque[Shard] = deque()
        self._closed = threading.Event()

    def take(self) -> Shard:
        """The next shard whose speech is whole; waits for one.

        Raises:
            WorkError: a process failed, or ended before its shards were there; or it is closed, or
                every shard has been taken.
        """
        with self._lock:
            self._look()
            while not self._whole:
                if not any(maker.left for maker in self.makers):
                    raise WorkError("every shard has been taken; none is to come", retryable=False)
                if self._closed.wait(LOOK_EVERY_S):
                    raise WorkError("speech is not waited for any more", retryable=True)
                self._look()
            return self._whole.popleft()

    def close(self) -> None:
        """Wait no more: whoever does gets an error."""
        self._closed.set()

    def _look(self) -> None:
        for maker in self.makers:
            # Asked before looking: what a process that has ended made is there.
            ended = maker.process.process.poll() is not None
            wanted = maker.left if ended else maker.left[:_NEXT]
            for shard in [s for s in wanted if self._store.exists(s.object_key("speech"))]:
                maker.left.remove(shard)
                self._whole.append(shard)
            if ended:
                maker.process.wait()
                if maker.left:
                    raise WorkError(
                        f"{MODULE} ended without speech of {maker.left[0].key} in "
                        f"{self._store.root}; did something remove it?",
                        retryable=False,
                    )


@contextlib.contextmanager
def speech_makers(
    store: Store, shards: Sequence[Shard], *, processes: int, decoders: int, max_clip_s: float
) -> Generator[SpeechMakers]:
    """`processes` of them, as a run starts each, that take turns at `shards`.

    Each decodes in `decoders` processes. None is left when the context ends; without an error they
    have come to their own end.
    """
    with contextlib.ExitStack() as stack:
        makers: list[Maker] = []
        for number in range(processes):
            mine = list(shards[number::processes])
            arguments = [
                *("--store", store.root, "--max-clip-s", str(max_clip_s)),
                *("--shards", *(shard.key for shard in mine)),
            ]
            # Without a bar: several would write over each other.
            environment = {"SPEECH_THREADS": str(decoders), "SPEECH_BAR": ""}
            process = stack.enter_context(
                work.running(MODULE, arguments, environment, hidden=_MADE)
            )
            makers.append(Maker(process, mine))
        yield SpeechMakers(store, makers)
        for maker in makers:
            maker.process.wait()
