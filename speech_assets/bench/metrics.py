"""What a server counts: its /metrics, read, and what they changed by."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of each type of metric, the ends of the names of the samples that only grow; a sum grows too,
# unless what it adds up can be negative.
_GROWING = {
    "counter": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
    "summary": ("_count", "_sum"),
}


@dataclass(frozen=True, slots=True)
class Metrics:
    """Samples by their name and labels, as in the text, and which of them are counts.

    What is a count is its type's word, not its name's: a gauge may be called `jobs_total`.
    """

    values: dict[str, float]
    counts: frozenset[str] = field(default_factory=frozenset[str])

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """Read Prometheus' text. Samples that are no finite number are left out.

        Raises:
            ValueError: it is not of that format.
        """
        values: dict[str, float] = {}
        counts: set[str] = set()
        try:
            for family in text_string_to_metric_families(text):
                growing = _GROWING.get(family.type, ())
                for sample in family.samples:
                    name = sample.name + _labels(sample.labels)
                    if sample.name.endswith("_created") or not math.isfinite(sample.value):
                        continue
                    values[name] = float(sample.value)
                    if sample.name.startswith(family.name) and sample.name.endswith(growing):
                        counts.add(name)
        # The parser has no error of its own: of broken lines come IndexError, KeyError and others.
        except Exception as error:
            raise ValueError(f"no metrics: {type(error).__name__}: {error}") from error
        return cls(values, frozenset(counts))


def changes(before: Metrics | None, after: Metrics | None) -> dict[str, float] | None:
    """What counters and histograms grew by, and where gauges stand; None where nothing is known."""
    if before is None or after is None:
        return None
    return {
        name: value - before.values.get(name, 0.0) if name in after.counts else value
        for name, value in after.values.items()
    }


def fell(before: Metrics, after: Metrics) -> bool:
    """Whether a count is lower than it was, which only a new process can make of it."""
    return any(
        after.values.get(name, math.inf) < before.values[name]
        for name in before.counts & after.counts
        if not name.partition("{")[0].endswith("_sum")
    )


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
