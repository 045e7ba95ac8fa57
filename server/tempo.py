"""Speech faster or slower at the same pitch, as it streams.

WSOLA (Verhelst and Roelands, 1993): the output is pieces of the input, laid over each other where
their waveforms agree best. A piece is the one that follows the last one's own continuation most
closely, near where its time lies; so a voiced sound goes on in phase, and pitch and formants stay.

FFmpeg's `atempo` works likewise, and was not taken: it holds a whole first chunk of speech back,
gives nothing at all of 20 ms, and on 10 s of speech ended up to 48 ms too early or late; chained,
as it must be below 0.5, its output also depends on how the input is cut up.
"""

from __future__ import annotations

import numpy as np

from server.frames import SAMPLE_RATE_HZ

PIECE_SAMPLES = 360  # 15 ms: a pitch period of 67 Hz.
_REACH = 300  # Either way: 25 ms hold a period of any voice.
_FADE_IN = 0.5 - 0.5 * np.cos(np.pi * (np.arange(PIECE_SAMPLES) + 0.5) / PIECE_SAMPLES)
# Where nearly nothing is to be heard, all pieces agree: the nearest is taken.
_SILENCE = float(PIECE_SAMPLES)
_NOTHING = np.zeros(0, np.int16)

Samples = np.ndarray[tuple[int], np.dtype[np.int16]]
_Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def held_s(speed: float) -> float:
    """Most seconds of played audio that a `Tempo` of this speed holds back."""
    if speed == 1.0:
        return 0.0
    # A piece waits for the reach of its search and of the one before it, and for the last piece.
    by_time = (_REACH + PIECE_SAMPLES) / speed
    by_last = (_REACH + 2 * PIECE_SAMPLES) / speed - PIECE_SAMPLES
    return max(by_time, by_last, 2 * PIECE_SAMPLES) / SAMPLE_RATE_HZ


class Tempo:
    """One stream's change of tempo. Its output does not depend on how the input is cut up.

    Of n samples round(n / speed) come out. The first and the last are the input's own.

    Attributes:
        speed: how much faster speech becomes; 0.25 to 4.
    """

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._input: _Floats = np.zeros(0)
        self._dropped = 0  # Samples of the input that are no longer in `_input`.
        self._taken = 0  # Samples of the input so far.
        self._pieces = 0
        self._follows = 0  # Where in the input the last piece would go on.

    def push(self, samples: Samples) -> Samples:
        """What can be played once these samples are known, int16, maybe none."""
        if self.speed == 1.0:
            return samples
        self._take(samples.astype(np.float64))
        out: list[_Floats] = []
        while self._may_go_on():
            out.append(self._piece())
        return _rounded(out)

    def end(self) -> Samples:
        """The rest, int16: nothing more comes."""
        if self.speed == 1.0:
            return _NOTHING
        taken = self._taken
        left = round(taken / self.speed) - self._pieces * PIECE_SAMPLES
        out: list[_Floats] = []
        # Silence follows the end, as far as a piece may reach.
        self._take(np.zeros(left + 2 * (_REACH + 2 * PIECE_SAMPLES)))
        while left >= 2 * PIECE_SAMPLES:
            out.append(self._piece())
            left -= PIECE_SAMPLES
        out.append(self._last(taken - left, left))
        self._input = self._input[:0]
        return _rounded(out)

    def _take(self, samples: _Floats) -> None:
        # What no piece can reach any more is dropped: memory does not grow with the utterance.
        last = self._taken - 2 * PIECE_SAMPLES
        unused = min(self._follows, self._due() - _REACH, last) - self._dropped
        if unused > 0:
            self._input = self._input[unused:]
            self._dropped += unused
        self._input = np.concatenate([self._input, samples])
        self._taken += len(samples)

    def _due(self) -> int:
        """Where in the input the next piece lies by its time."""
        return round(self._pieces * PIECE_SAMPLES * self.speed)

    def _may_go_on(self) -> bool:
        """Whether the next piece is known, and surely leaves enough for the last."""
        reaches = max(self._due() + _REACH, self._follows) + PIECE_SAMPLES
        ends = (self._pieces + 2) * PIECE_SAMPLES
        return self._taken >= reaches and self._taken >= ends * self.speed

    def _piece(self) -> _Floats:
        """The next piece of the output."""
        if not self._pieces:
            start, piece = 0, self._at(0, PIECE_SAMPLES)
        else:
            before = self._at(self._follows, PIECE_SAMPLES)
            start = self._best(before)
            piece = before + _FADE_IN * (self._at(start, PIECE_SAMPLES) - before)
        self._pieces += 1
        self._follows = start + PIECE_SAMPLES
        return piece

    def _best(self, before: _Floats) -> int:
        """Where the input near the next piece's time is most like `before`."""
        due = self._due()
        first = max(due - _REACH, self._dropped)
        near = self._at(first, due + _REACH + PIECE_SAMPLES - first)
        likeness = np.correlate(near, before, "valid")
        energy = np.concatenate([[0.0], np.cumsum(near * near)])
        likeness /= np.sqrt(energy[PIECE_SAMPLES:] - energy[:-PIECE_SAMPLES] + _SILENCE)
        # Of equals the one whose time is right.
        likeness -= 1e-9 * np.abs(np.arange(len(likeness)) - (due - first))
        return first + int(np.argmax(likeness))

    def _last(self, start: int, count: int) -> _Floats:
        """The last `count` samples of the output: the input's, from `start` on."""
        end = self._at(max(0, start), count)
        fade = min(PIECE_SAMPLES // 2, count)
        before = self._at(self._follows, fade)
        fade_in = _FADE_IN[np.arange(fade) * PIECE_SAMPLES // fade]
        end[:fade] = before + fade_in * (end[:fade] - before)
        return end

    def _at(self, start: int, count: int) -> _Floats:
        """So many samples of the input from `start` on, a copy."""
        first = start - self._dropped
        return self._input[first : first + count].copy()


def _rounded(pieces: list[_Floats]) -> Samples:
    if not pieces:
        return _NOTHING
    return np.rint(np.concatenate(pieces)).clip(-32_768, 32_767).astype(np.int16)
