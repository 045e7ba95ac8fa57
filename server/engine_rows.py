"""The rows of a model's vocabulary that can be sampled, and the engine's own order of all rows.

Only the codes that the codec gives and end_of_speech can follow in speech. The engine puts them
first (slot by slot, `end_of_speech` after them) and everything else behind, so that the cut head is
one slice of the weights, and logits, penalties and top-p work on it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.frames import CODEBOOK_SIZE, TOKENS_PER_FRAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from server.frames import TokenLayout


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Where each slot's rows lie in the engine's order: slot s has `codes` rows from s * codes."""

    codes: int  # Rows a slot: the layout's live codes.
    audio_base: int
    end_of_speech: int

    @classmethod
    def of(cls, layout: TokenLayout) -> SampledRows:
        """The rows of a layout."""
        return cls(layout.live_codes, layout.audio_base, layout.end_of_speech)

    @property
    def stop(self) -> int:
        """Engine's id of end_of_speech: the row after the audio rows."""
        return self.codes * TOKENS_PER_FRAME

    @property
    def count(self) -> int:
        """Rows that can be sampled."""
        return self.stop + 1

    def order(self, vocabulary_size: int) -> NDArray[np.int64]:
        """The model's id, int64 of shape (vocabulary_size,), of each id of the engine."""
        slots = np.arange(TOKENS_PER_FRAME)[:, None] * CODEBOOK_SIZE
        audio = (self.audio_base + slots + np.arange(self.codes)).reshape(-1)
        first = np.append(audio, self.end_of_speech)
        rest = np.setdiff1d(np.arange(vocabulary_size), first)
        return np.concatenate([first, rest]).astype(np.int64)

    def off_slot(self) -> NDArray[np.bool_]:
        """Whether a row, of shape (7, count), may not be sampled when a slot is due.

        Speech ends between frames only: end_of_speech goes with slot 0.
        """
        off = np.ones((TOKENS_PER_FRAME, self.count), np.bool_)
        for slot in range(TOKENS_PER_FRAME):
            off[slot, slot * self.codes : (slot + 1) * self.codes] = False
        off[0, self.stop] = False
        return off


class RowNumbers:
    """Translates ids between a model and its engine, both ways and exactly.

    `rows` is None for an engine that keeps the model's ids.
    """

    def __init__(self, rows: SampledRows | None, vocabulary_size: int) -> None:
        self._to_model: list[int] | None = None
        self._to_engine: list[int] | None = None
        if rows is not None:
            order = rows.order(vocabulary_size)
            self._to_model = order.tolist()
            self._to_engine = np.argsort(order).tolist()

    def to_engine(self, model_ids: Sequence[int]) -> list[int]:
        """The engine's ids of the model's `model_ids`."""
        table = self._to_engine
        return list(model_ids) if table is None else [table[n] for n in model_ids]

    def to_model(self, engine_ids: Sequence[int]) -> list[int]:
        """The model's ids of `engine_ids`."""
        table = self._to_model
        return list(engine_ids) if table is None else [table[n] for n in engine_ids]
