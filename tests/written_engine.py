"""An engine whose tokens are written beforehand, and the reader of what they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.engine import EngineOutput, Generation

if TYPE_CHECKING:
    from collections.abc import Iterable


class Facts:
    """What `Rounds` asks of an engine's facts."""

    slot_rule = "enforced"


@dataclass
class Heard:
    """An utterance's reader, of whom it is said how much audio waits for it."""

    lead_s: float = 0.0


@dataclass
class WrittenEngine:
    """Gives the ids of one utterance, `burst` of them a step, and then its end."""

    ids: list[int]
    burst: int
    asked: list[Generation] = field(default_factory=list[Generation])
    facts: Facts = field(default_factory=Facts)
    busy: bool = False

    def add(self, generation: Generation) -> None:
        """Take up the utterance, or go on with it."""
        self.asked.append(generation)
        self.busy = True

    def abort(self, request_ids: Iterable[str]) -> None:
        """Pause it, or end it."""
        assert list(request_ids) == [self.asked[-1].request_id]
        self.busy = False

    def step(self) -> list[EngineOutput]:
        """The next ids, with the end once there are no more."""
        given, self.ids = self.ids[: self.burst], self.ids[self.burst :]
        self.busy = bool(self.ids)
        return [EngineOutput(self.asked[-1].request_id, given, None if self.ids else "stop")]
