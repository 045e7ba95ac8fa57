"""The silence after an utterance's last sound: cut to 150 ms, and faded out.

Whether a silence is a pause or the end is known only later. So what exceeds 150 ms of it is held
back: sent on when sound returns or the player would run dry, dropped at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server import frames
from server.level import BLOCK_SAMPLES, BlockReader, amplitude, rms

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PIECE_S = BLOCK_SAMPLES / frames.SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class TailConfig:
    """How an utterance's end is trimmed.

    Attributes:
        quiet_dbfs: level below which 10 ms are silence.
        keep_s: silence kept after the last sound.
        fade_s: fade-out at the end.
    """

    quiet_dbfs: float = -50.0
    keep_s: float = 0.150
    fade_s: float = 0.008


class Tail:
    """Passes an utterance's samples on, without the silence at its end."""

    def __init__(self, config: TailConfig | None = None) -> None:
        self._config = config or TailConfig()
        self._quiet_level = amplitude(self._config.quiet_dbfs)
        self._keep = round(self._config.keep_s * frames.SAMPLE_RATE_HZ)
        self._blocks = BlockReader()
        self._held = np.zeros(0, np.int16)
        self._sent = 0
        self._read = 0  # blocks
        self._sound_end = 0  # first sample after the last sound
        self.trimmed_samples = 0

    def push(self, samples: NDArray[np.int16], *, last: bool = False) -> NDArray[np.int16]:
        """Samples to send now. The utterance's `last` (which may be none) are trimmed and faded."""
        blocks = self._blocks.take(samples)
        if (sounding := self._sounding(blocks)) is not None:
            self._sound_end = (self._read + sounding + 1) * BLOCK_SAMPLES
        self._read += len(blocks)
        self._held = np.concatenate([self._held, samples]) if len(self._held) else samples
        # What is kept whether or not more sound comes.
        ready = self._take(self._sound_end + self._keep - self._sent)
        if not last:
            return ready
        self.trimmed_samples += len(self._held)
        self._held = self._held[:0]
        count = min(round(self._config.fade_s * frames.SAMPLE_RATE_HZ), len(ready))
        ready = ready.copy()
        ready[len(ready) - count :] = np.rint(
            ready[len(ready) - count :] * np.linspace(1, 0, count + 1)[1:]
        )
        return ready

    @property
    def holds(self) -> bool:
        """Whether silence is held back."""
        return len(self._held) > 0

    def due(self, slack_s: float, reserve_s: float) -> NDArray[np.int16]:
        """Held silence to send now, because the player can go on for `slack_s` only."""
        if not len(self._held):  # As nearly always: this is asked of every stream, each step.
            return self._held
        pieces = math.ceil((reserve_s - slack_s) / _PIECE_S)
        return self._take(max(0, pieces) * BLOCK_SAMPLES)

    def _sounding(self, blocks: NDArray[np.int16]) -> int | None:
        """Index of the last block that is not silence."""
        if not len(blocks):
            return None
        # In speech nearly always the last one: the others need not be looked at.
        if rms(blocks[-1:])[0] >= self._quiet_level:
            return len(blocks) - 1
        loud = np.flatnonzero(rms(blocks) >= self._quiet_level)
        return int(loud[-1]) if len(loud) else None

    def _take(self, count: int) -> NDArray[np.int16]:
        count = max(0, min(count, len(self._held)))
        taken, self._held = self._held[:count], self._held[count:]
        self._sent += count
        return taken
