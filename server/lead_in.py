"""The near-silence before an utterance's first sound: found, paced out, and cut.

Orpheus begins each utterance with about 0.6 s of it. Sent whole, it delays speech; dropped, players
have nothing while it is generated. So it is held. A first piece goes out as soon as what is held
lasts until speech can follow, then as little as keeps the player fed; what is left when speech is
there is dropped. Under load the reserve is larger, and what would be dropped becomes the player's
buffer.

The lead-in is decoded early, with little right context, only to be searched (an error of -75 dBFS
in near-silence). From the onset on the utterance is decoded again in full quality.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from server import frames
from server.level import BLOCK_SAMPLES, amplitude

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NOTHING = np.zeros(0, np.int16)


def samples_of(seconds: float) -> int:
    """Samples of a duration."""
    return round(seconds * frames.SAMPLE_RATE_HZ)


@dataclass(frozen=True, slots=True)
class LeadInConfig:
    """How the onset is found and the silence before it paced.

    Attributes:
        onset_dbfs: level that 20 ms must pass, without their DC, twice in a row. The lead-in lies
            at -50 to -55, speech at -24.
        search_s: give up after so much and send all (whispers, sighs).
        keep_s: what is kept before the onset.
        fade_s: fade-in where something was cut.
        first_s: sent first: two latents.
        piece_s: sent at a time after that.
    """

    onset_dbfs: float = -45.0
    search_s: float = 1.2
    keep_s: float = 0.030
    fade_s: float = 0.005
    first_s: float = 2 * frames.SAMPLES_PER_LATENT / frames.SAMPLE_RATE_HZ
    piece_s: float = 0.010


class LeadIn:
    """One utterance's lead-in. With "keep" nothing is searched or cut.

    Decoded lead-in goes to `search`, until it gives the latent from which speech is to be decoded.
    Until decoded speech goes through `speech`, `due` gives what to send.

    Attributes:
        searching: whether the onset is not known yet.
        waiting: whether no speech has gone through yet, and silence is due meanwhile.
        trimmed_samples: silence that was cut, known when speech begins.
    """

    def __init__(
        self, mode: Literal["trim", "keep"] = "trim", config: LeadInConfig | None = None
    ) -> None:
        self._config = config or LeadInConfig()
        # The lead-in, up to where speech begins once that is known; `_sent` samples are sent.
        self._held = _NOTHING
        self._sent = 0
        self._begin = 0  # first sample of what is sent as speech
        self._searched = 0  # blocks
        self._above = False  # the last window was above the level
        self._skip = 0  # samples of decoded speech before what is sent of it
        self._fade = False
        self.searching = self.waiting = mode == "trim"
        self.trimmed_samples = 0

    def search(self, samples: NDArray[np.int16]) -> int | None:
        """Take lead-in samples (int16, in order); gives the latent to decode speech from, once.

        That is when sound begins, or when the search has lasted too long.
        """
        if not self.searching:
            return None
        self._held = np.concatenate([self._held, samples])
        onset = self._onset()
        if onset is not None:
            return self._found(max(self._sent, onset - samples_of(self._config.keep_s)))
        if len(self._held) >= samples_of(self._config.search_s):
            return self.give_up()
        return None

    def give_up(self) -> int:
        """End the search without an onset: nothing is cut. Gives the latent to decode from.

        For utterances that end before anything is heard, too: silence is what they are.
        """
        return self._found(self._sent)

    def due(self, slack_s: float, reserve_s: float, until_speech_s: float) -> NDArray[np.int16]:
        """Silence to send now, int16, maybe none.

        Args:
            slack_s: how long the player can go on with what it was sent.
            reserve_s: how long it should, so that it lasts until this is asked again.
            until_speech_s: in what time speech can be at the player; if the onset is not known, as
                if it came next. A player that begins with less silence than that would run dry.
        """
        left = len(self._held) - self._sent
        if not self.waiting or not left:
            return _NOTHING
        if not self._sent:
            first = samples_of(self._config.first_s)
            is_enough = len(self._held) >= max(first, samples_of(until_speech_s))
            count = first if is_enough else 0
        else:
            piece = samples_of(self._config.piece_s)
            pieces = math.ceil((reserve_s - slack_s) / self._config.piece_s)
            count = min(max(0, pieces) * piece, left)
        piece = self._held[self._sent : self._sent + count]
        self._sent += count
        return piece

    def speech(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        """Decoded speech, in order from the latent that `search` gave, as it is to be sent."""
        if self.waiting and len(samples):
            self.waiting = False
            self.trimmed_samples = self._begin - self._sent
            self._fade = self.trimmed_samples > 0
            self._held = _NOTHING
        dropped = min(self._skip, len(samples))
        self._skip -= dropped
        kept = samples[dropped:]
        if self._fade and len(kept):
            count = min(samples_of(self._config.fade_s), len(kept))
            kept = kept.copy()
            kept[:count] = np.rint(kept[:count] * np.linspace(0, 1, count, endpoint=False))
            self._fade = False
        return kept

    def _found(self, begin: int) -> int:
        latent, self._skip = divmod(begin, frames.SAMPLES_PER_LATENT)
        self.searching = False
        self._begin, self._held = begin, self._held[:begin]
        return latent

    def _onset(self) -> int | None:
        """First sample of the first two 20 ms windows, 10 ms apart, that are above the level."""
        limit = amplitude(self._config.onset_dbfs)
        while (self._searched + 2) * BLOCK_SAMPLES <= len(self._held):
            first = self._searched * BLOCK_SAMPLES
            window = self._held[first : first + 2 * BLOCK_SAMPLES].astype(np.float64)
            above = bool(window.std() > limit)
            if above and self._above:
                return first - BLOCK_SAMPLES
            self._above = above
            self._searched += 1
        return None
