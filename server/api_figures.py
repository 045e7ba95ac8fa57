"""The metrics of all processes, the engine's and the API's, for whichever of them is asked."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Literal

from server.scrape import added, counted, families_of
from server.wire import Collect, Scraped

if TYPE_CHECKING:
    from server.api_child import ApiChild
    from server.serving import Serving
    from server.wire import Family, Figures

COLLECT_S = 2.0  # For the figures of a process; then those that it sent last.


class ApiFigures:
    """What API processes have counted, those that are gone included."""

    def __init__(self, serving: Serving, children: list[ApiChild]) -> None:
        """`children` are those that run, now and later."""
        self._serving, self._children = serving, children
        self._collects = itertools.count()
        self._scrapes: set[asyncio.Task[None]] = set()
        self._departed: list[Family] = []  # Counts of processes that are gone.

    def take(self, child: ApiChild, figures: Figures) -> None:
        """A process has sent its figures."""
        child.figures = figures.families
        child.is_late, child.silent_looks = False, 0
        if figures.number in child.collects:
            child.collects[figures.number].set()

    def keep(self, child: ApiChild) -> None:
        """A process is gone; what it counted stays."""
        self._departed = added([self._departed, counted(child.figures)])
        for collected in child.collects.values():
            collected.set()

    def scrape(self, asking: ApiChild, number: int) -> None:
        """Send a process the figures of all, as soon as they have come."""
        task = asyncio.create_task(self._scrape(asking, number), name="scrape")
        self._scrapes.add(task)
        task.add_done_callback(self._scrapes.discard)

    async def _scrape(self, asking: ApiChild, number: int) -> None:
        collect = Collect(next(self._collects))
        asked = [child for child in self._children if child.is_open and not child.is_late]
        waits: list[asyncio.Task[Literal[True]]] = []
        for child in asked:
            collected = child.collects[collect.number] = asyncio.Event()
            child.link.send(collect)
            waits.append(asyncio.create_task(collected.wait()))
        self._serving.show_state()
        if waits:
            _, late = await asyncio.wait(waits, timeout=COLLECT_S)
            for wait in late:
                wait.cancel()
        for child in asked:
            child.is_late = not child.collects.pop(collect.number).is_set()
        own = families_of(self._serving.metrics.registry)
        there = [child.figures for child in self._children]
        asking.link.send(Scraped(number, [own, self._departed, *there]))
