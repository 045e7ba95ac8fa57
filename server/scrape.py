"""The metrics of several processes as one scrape: each count and each second once.

What is counted is added up, also what was counted by processes that are gone: a counter must never
fall. A gauge is the engine's process' own, which knows places and queue, unless each process has a
part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from server.wire import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

_COUNTED = frozenset({"counter", "histogram", "summary"})
# Gauges of which each process has its part.
_SHARED = frozenset(
    {
        "speech_open_sockets",
        "speech_open_connections",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",  # Or the open ones could not be compared with it.
    }
)
_CREATED = "_created"  # Time of a counter's first count: the earliest is that of the sum.

_Key = tuple[str, tuple[tuple[str, str], ...]]


def families_of(registry: CollectorRegistry) -> list[Family]:
    """The metrics of this process, now."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def added(processes: Iterable[Sequence[Family]]) -> list[Family]:
    """The metrics of all `processes`, of which the first is the engine's."""
    first: dict[str, Family] = {}
    values: dict[str, dict[_Key, float]] = {}
    for families in processes:
        for family in families:
            if family.name in first and family.type not in _COUNTED and family.name not in _SHARED:
                continue
            first.setdefault(family.name, family)
            sums = values.setdefault(family.name, {})
            for name, labels, value in family.samples:
                key = (name, tuple(sorted(labels.items())))
                if key not in sums:
                    sums[key] = value
                elif name.endswith(_CREATED):
                    sums[key] = min(sums[key], value)
                else:
                    sums[key] += value
    return [
        Family(
            family.name,
            family.words,
            family.type,
            [(name, dict(labels), value) for (name, labels), value in values[family.name].items()],
        )
        for family in first.values()
    ]


def counted(families: Sequence[Family]) -> list[Family]:
    """What outlives a process: its counts, not its gauges."""
    return [family for family in families if family.type in _COUNTED]


class _Collected:
    """Families in the place of a registry."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.words, family.type)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric


def rendered(families: Iterable[Family]) -> bytes:
    """The text that a scrape gets."""
    return generate_latest(_Collected(families))  # pyright: ignore[reportArgumentType]
