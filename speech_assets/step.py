"""One step of the demo: a run of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a job: for one partition, for a range of them, or for none.

    `title` says what it does. With `judges`, a check that fails is an answer, said and passed over,
    not a fault. With `is_served` it is left out, and that is said, where no server would take the
    partition's preset.
    """

    job: str
    title: str
    partition: str | None = None
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    tags: dict[str, str] = field(default_factory=dict[str, str])
    judges: bool = False
    is_served: bool = False
