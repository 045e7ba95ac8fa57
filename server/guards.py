"""Guards against utterances that do not end: too long, silent, or in a loop.

0.2 % of utterances of such models run on, one of them costs as much as thirty others. What a text
should last is known well enough to tell; each guard only decides, and says where to cut.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from server import frames
from server.level import BLOCK_SAMPLES, BlockReader, amplitude

if TYPE_CHECKING:
    from numpy.typing import NDArray

Reason = Literal["length", "silence", "loop"]

_BLOCK_S = BLOCK_SAMPLES / frames.SAMPLE_RATE_HZ
_RECENT_BLOCKS = 30  # 0.3 s, what a dip is measured against
_LOOP_CHECK_FRAMES = 8  # So that 512 streams can afford it.
_PAUSE_S = 0.2
_COARSE_SLOTS = [*frames.SLOTS_OF_LEVEL[0], *frames.SLOTS_OF_LEVEL[1]]


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """Limits of an utterance. Calibrate `characters_per_s` for each voice.

    Attributes:
        characters_per_s: of text spoken in a second.
        pauses_s: what every utterance has besides (lead-in, tail).
        longest_share: an utterance is cut at this times its expected duration,
        longest_extra_s: but never before it is so much longer than expected.
        silence_s: cut when so much is below `quiet_dbfs` ...
        silence_share: ... and so much of the expected duration has passed: cutting at the first
            long pause would lose speech.
        loop_s: cut when so much of codes repeats what was before.
        loop_match: share of codes that must be the same. Sampling varies what it repeats.
        dip_db: a dip, where a cut is made, is 20 ms so far below the last 0.3 s (or silent).
        cut_within_s: a cut waits so long for a dip.
    """

    characters_per_s: float = 14.0
    pauses_s: float = 0.6
    longest_share: float = 1.8
    longest_extra_s: float = 1.5
    quiet_dbfs: float = -50.0
    silence_s: float = 1.5
    silence_share: float = 0.8
    loop_s: float = 2.0
    loop_match: float = 0.9
    dip_db: float = 15.0
    cut_within_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Cut:
    """End the utterance: why, and after how many samples of the chunk at hand."""

    reason: Reason
    samples: int


class Guard:
    """Watches one utterance of a text of so many characters."""

    def __init__(self, characters: int, config: GuardConfig | None = None) -> None:
        self._config = config or GuardConfig()
        self.expected_s = characters / self._config.characters_per_s + self._config.pauses_s
        self._quiet_level = amplitude(self._config.quiet_dbfs)
        self._blocks = BlockReader()
        self._read = 0  # blocks
        self._quiet = 0  # blocks in a row
        self._recent: deque[float] = deque(maxlen=_RECENT_BLOCKS)
        self._pending: Reason | None = None
        self._cut_by_s = math.inf
        self._checked_frames = 0

    @property
    def longest_s(self) -> float:
        """When the utterance is cut at the latest, but for the dip that a cut waits for."""
        extra_s = self.expected_s + self._config.longest_extra_s
        return max(self._config.longest_share * self.expected_s, extra_s)

    @property
    def max_tokens(self) -> int:
        """Tokens to ask of the engine: of 2 s more, so that the cut comes first."""
        return frames.TOKENS_PER_FRAME * math.ceil(frames.FRAMES_PER_S * (self.longest_s + 2))

    def begin(self, sample: int) -> None:
        """`hear` starts at this sample of the utterance: its lead-in is over."""
        self._read = sample // BLOCK_SAMPLES

    def read(self, codes: NDArray[np.integer]) -> None:
        """Look for a loop in an utterance's codes so far, of shape (frames, 7). `hear` tells."""
        span = round(self._config.loop_s * frames.FRAMES_PER_S)
        if len(codes) < max(2 * span, self._checked_frames + _LOOP_CHECK_FRAMES):
            return
        self._checked_frames = len(codes)
        # Of levels 0 and 1: the finest codes differ between repetitions that sound the same.
        recent = codes[-2 * span :][:, _COARSE_SLOTS]
        # Against itself shifted by each period up to loop_s: (periods, slots, frames).
        shifted = np.lib.stride_tricks.sliding_window_view(recent[:-1], span, axis=0)
        same = (shifted == recent[-span:].T).mean((1, 2))
        # Silence repeats itself too; how long it may is another rule.
        if same.max() >= self._config.loop_match and self._quiet * _BLOCK_S < _PAUSE_S:
            self._cut_soon("loop")

    def hear(self, samples: NDArray[np.int16]) -> Cut | None:
        """Take decoded samples (int16, in order, before any trim); says whether to end there."""
        carried = self._blocks.carried
        levels = self._blocks.read(samples)
        ends_s = (self._read + len(levels)) * _BLOCK_S
        sound = len(levels) > 0 and bool(levels.min() >= self._quiet_level)
        if sound and self._pending is None and ends_s < self.longest_s:
            # Nearly always, and so ten times cheaper than block by block.
            self._read += len(levels)
            self._quiet = 0
            self._recent.extend(levels[-_RECENT_BLOCKS:].tolist())
            return None
        for index, level in enumerate(levels.tolist()):
            reason = self._hear_block(level)
            if reason is not None:
                return Cut(reason, (index + 1) * BLOCK_SAMPLES - carried)
        return None

    def _hear_block(self, level: float) -> Reason | None:
        self._read += 1
        self._quiet = self._quiet + 1 if level < self._quiet_level else 0
        now_s = self._read * _BLOCK_S
        if (
            self._quiet * _BLOCK_S >= self._config.silence_s
            and now_s >= self._config.silence_share * self.expected_s
        ):
            return "silence"
        if now_s >= self.longest_s:
            self._cut_soon("length")
        here = self._pending is not None and (now_s >= self._cut_by_s or self._is_dip(level))
        self._recent.append(level)
        return self._pending if here else None

    def _is_dip(self, level: float) -> bool:
        """Whether this block and the one before it are a dip in the sound of the last 0.3 s."""
        if not self._recent:
            return False
        usual = math.sqrt(sum(each * each for each in self._recent) / len(self._recent))
        limit = max(self._quiet_level, usual * 10 ** (-self._config.dip_db / 20))
        return max(level, self._recent[-1]) <= limit

    def _cut_soon(self, reason: Reason) -> None:
        if self._pending is None:
            self._pending = reason
            self._cut_by_s = self._read * _BLOCK_S + self._config.cut_within_s
