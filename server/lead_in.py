"""The near-silence before an utterance's first sound: found, paced out, and cut.

Orpheus begins each utterance with about 0.6 s of it. Sent whole, it delays speech; dropped, players
have nothing while it is generated. So it is held: a first piece goes out at once, then as little as
keeps the player fed; where sound begins the rest is dropped. Under load the reserve is larger, and
what would be dropped becomes the player's buffer.

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
        first_s: sent as soon as it is there: two latents.
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

    Decoded lead-in goes to `search`, until it gives the latent from which speech is to be decoded;
    meanwhile `due` gives what to send. Then decoded speech goes through `speech`.
    """

    def __init__(
        self, mode: Literal["trim", "keep"] = "trim", config: LeadInConfig | None = None
    ) -> None:
        self._config = config or LeadInConfig()
        self._held = _NOTHING  # All of the lead-in; the first `_sent` samples are sent.
        self._sent = 0
        self._searched = 0  # blocks
        self._above = False  # the last window was above the level
        self._skip = 0  # samples of decoded speech before what is sent of it
        self._fade = False
        self.searching = mode == "trim"
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
            return self._speak(max(self._sent, onset - samples_of(self._config.keep_s)))
        if len(self._held) >= samples_of(self._config.search_s):
            return self.give_up()
        return None

    def give_up(self) -> int:
        """End the search without an onset: nothing is cut. Gives the latent to decode from.

        For utterances that end before anything is heard, too: silence is what they are.
        """
        return self._speak(self._sent)

    def due(self, slack_s: float, reserve_s: float) -> NDArray[np.int16]:
        """Silence to send now, int16, maybe none.

        Args:
            slack_s: how long the player can go on with what it was sent.
            reserve_s: how long it should: 10 ms where few streams run, else the jitter allowance.
        """
        if not self.searching:
            return _NOTHING
        first = samples_of(self._config.first_s)
        if not self._sent:
            count = first if len(self._held) >= first else 0
        else:
            piece = samples_of(self._config.piece_s)
            pieces = math.ceil((reserve_s - slack_s) / self._config.piece_s)
            count = min(max(0, pieces) * piece, len(self._held) - self._sent)
        piece = self._held[self._sent : self._sent + count]
        self._sent += count
        return piece

    def speech(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        """Decoded speech, in order from the latent that `search` gave, as it is to be sent."""
        dropped = min(self._skip, len(samples))
        self._skip -= dropped
        kept = samples[dropped:]
        if self._fade and len(kept):
            count = min(samples_of(self._config.fade_s), len(kept))
            kept = kept.copy()
            kept[:count] = np.rint(kept[:count] * np.linspace(0, 1, count, endpoint=False))
            self._fade = False
        return kept

    def _speak(self, begin: int) -> int:
        latent, self._skip = divmod(begin, frames.SAMPLES_PER_LATENT)
        self.trimmed_samples = begin - self._sent
        self._fade = self.trimmed_samples > 0
        self.searching = False
        self._held = _NOTHING
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
