"""Places: how many utterances are made at once, how many wait for one, and who gets it next.

All of it is of the event loop. Who waits is served in the order of arrival, and never waits while
nothing is being made, so that no measurement can keep everybody out.
"""

from __future__ import annotations

import asyncio
import collections
import math
import time
from typing import TYPE_CHECKING, Literal

from server.errors import OverloadedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.step_times import StepTimes

Admission = Literal["places", "pace"]

LONGEST_WAIT_S = 10.0
"""A request waits so long for a place. Clients that are told to come again do so by themselves."""

_REMEMBERED = 64  # Utterances that were spoken, by which those that run are judged.
_LONGEST_RETRY_S = 60
_LOOK_S = 0.5  # Between looks at whether steps have become faster.
_HELD_S = 5.0  # Taken for an utterance's time before any has ended.


class Places:
    """At most `max_streams` utterances have a place; at most `max_queue` wait for one.

    With `steps`, a place is also withheld while one more stream would leave no stream in realtime,
    as far as the engine's steps of the last seconds tell.
    """

    def __init__(
        self,
        max_streams: int,
        max_queue: int,
        longest_wait_s: float = LONGEST_WAIT_S,
        *,
        steps: StepTimes | None = None,
        waited: Callable[[float], object] = lambda wait_s: None,
    ) -> None:
        self.max_streams, self.max_queue = max_streams, max_queue
        self.longest_wait_s = longest_wait_s
        self._steps, self._waited = steps, waited
        self._since_s: dict[str, float] = {}  # Of each that has a place.
        self._waiting: collections.deque[tuple[str, asyncio.Future[None]]] = collections.deque()
        self._held_s: collections.deque[float] = collections.deque(maxlen=_REMEMBERED)

    @property
    def taken(self) -> list[str]:
        """Names that have a place."""
        return list(self._since_s)

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be told to come again."""
        return not self._may_begin() and len(self._waiting) >= self.max_queue

    async def take(self, name: str) -> None:
        """Take a place, waiting for it if need be; `free` gives it back.

        Raises:
            OverloadedError: the queue is full, or no place came free in time.
        """
        if not self._waiting and self._may_begin():
            self._give(name)
            self._waited(0.0)
            return
        if len(self._waiting) >= self.max_queue:
            raise OverloadedError(
                f"{self._why_none()} and {len(self._waiting)} requests wait; try again",
                retry_after_s=self.retry_after_s(),
            )
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, place))
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(self.longest_wait_s):
                while self._steps is not None and not place.done():
                    # Nothing else tells that a slow moment is over.
                    await asyncio.wait((place,), timeout=_LOOK_S)
                    self._serve_waiting()
                await place
        except BaseException as error:
            if (name, place) in self._waiting:
                self._waiting.remove((name, place))
            self.free(name, was_spoken=False)  # It may have come just then.
            if isinstance(error, TimeoutError):
                raise OverloadedError(
                    f"no place came free in {self.longest_wait_s:g} s; try again",
                    retry_after_s=self.retry_after_s(),
                ) from error
            raise
        self._waited(time.monotonic() - began_s)

    def free(self, name: str, *, was_spoken: bool = True) -> None:
        """Give the place of `name` back, if it has one, and to whoever waits.

        One that was not spoken, as a text that is refused, tells nothing of how long others last.
        """
        since_s = self._since_s.pop(name, None)
        if since_s is not None and was_spoken:
            self._held_s.append(time.monotonic() - since_s)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Give the places that may be taken to those who have waited longest."""
        while self._waiting and self._may_begin():
            waiter, place = self._waiting.popleft()
            if not place.done():
                self._give(waiter)
                place.set_result(None)

    def refuse_waiting(self, message: str) -> None:
        """Tell all who wait to try again, elsewhere or later."""
        while self._waiting:
            _, place = self._waiting.popleft()
            if not place.done():
                place.set_exception(OverloadedError(message))

    def retry_after_s(self) -> int:
        """In how many whole seconds one who comes now is likely to find a place.

        Utterances are taken to last as long as those that ended lately did; those who wait go
        first. 1 to 60.
        """
        now_s = time.monotonic()
        ages_s = [now_s - since_s for since_s in self._since_s.values()]
        if not ages_s:
            return 1
        held_s = sum(self._held_s) / len(self._held_s) if self._held_s else max(_HELD_S, *ages_s)
        left_s = sorted(max(0.0, held_s - age_s) for age_s in ages_s)
        rounds, index = divmod(len(self._waiting), len(left_s))
        return max(1, min(_LONGEST_RETRY_S, math.ceil(left_s[index] + rounds * held_s)))

    def _may_begin(self) -> bool:
        count = len(self._since_s)
        if not count:
            return True
        if count >= self.max_streams:
            return False
        return self._steps is None or self._steps.keep_pace(count + 1, time.monotonic())

    def _give(self, name: str) -> None:
        self._since_s[name] = time.monotonic()

    def _why_none(self) -> str:
        if len(self._since_s) >= self.max_streams:
            return f"all {self.max_streams} places are taken"
        return f"{len(self._since_s)} streams are as many as can be made in realtime now"
