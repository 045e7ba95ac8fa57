"""Embeddings of voices by a pretrained network: the nearer two point, the more alike the speakers.

The network is that of L. Wan, Q. Wang, A. Papir, I. L. Moreno, "Generalized end-to-end loss for
speaker verification" (ICASSP 2018), with the weights of Resemblyzer 0.1.4 and, computed anew, its
own steps (resemblyzer/voice_encoder.py): mel power of 10 ms steps, three LSTM layers, the last
state through a linear layer and ReLU, to length 1; of parts of 1.6 s, averaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from speech_assets.mel import mel_power
from speech_assets.speaker.voice import Voice
from speech_assets.speaker.voiced import SAMPLE_RATE_HZ, voiced_part
from speech_assets.speaker.weights import NAME, read_weights, weights_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

BANDS, FFT, HOP = 40, 400, 160
SIZE = 256
PART = 160  # Steps: 1.6 s.
PARTS_PER_S = 1.3
_STEP = round(SAMPLE_RATE_HZ / PARTS_PER_S / HOP)
_LEAST = round(0.75 * PART * HOP)  # Samples of a last part, which is filled up with silence.
SHORTEST_S = _LEAST / SAMPLE_RATE_HZ
"""Of voiced speech, 1.2 s: less tells nobody apart.

Of the embedded corpus' main speaker, clips of 0.75 to 1.2 s have a mean cosine of 0.67 with her
clips above 2.5 s, and those reach 0.70 with other speakers' clips; clips of 1.2 to 1.6 s have 0.80,
of 4 s and more 0.92.
"""


class SpeakerEncoder:
    """The network with its weights, on the CPU: a clip takes some 20 ms on one core.

    `name` says which it is, for results.

    Raises:
        SpeakerWeightsError: the package with the weights is not installed, or damaged.
    """

    name = NAME

    def __init__(self) -> None:
        self._network = _Network()
        self._network.load_state_dict(read_weights(weights_file()))
        self._network.eval()

    def __call__(self, samples: NDArray[np.float32]) -> Voice:
        """The voice in `samples`, float32 (samples,) at 16 kHz in -1..1, or why there is none."""
        voiced = voiced_part(samples)
        if not len(voiced):
            return Voice(why="silent")
        if len(voiced) < SHORTEST_S * SAMPLE_RATE_HZ:
            return Voice(why="too_short")
        return Voice(self.embed(voiced))

    @torch.inference_mode()
    def embed(self, voiced: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embedding, float32 (256,) of length 1, of speech of which nothing is cut any more."""
        starts = part_starts(len(voiced))
        end = (starts[-1] + PART) * HOP
        filled = np.pad(voiced, (0, max(0, end - len(voiced))))
        steps = mel_power(filled, FFT, HOP, BANDS).astype(np.float32)
        parts = torch.from_numpy(np.stack([steps[at : at + PART] for at in starts]))
        mean = self._network(parts).mean(0)
        return (mean / mean.norm()).numpy()


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(BANDS, SIZE, 3, batch_first=True)
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, parts: Tensor) -> Tensor:
        """Embeddings (parts, 256) of mel power (parts, steps, 40)."""
        _, (state, _) = self.lstm(parts)
        raw = torch.relu(self.linear(state[-1]))
        return raw / raw.norm(dim=1, keepdim=True)


def part_starts(samples: int) -> list[int]:
    """First mel steps of the parts of a clip; the last may reach beyond its end."""
    steps = -(-(samples + 1) // HOP)
    starts = list(range(0, max(1, steps - PART + _STEP + 1), _STEP))
    is_short = samples - starts[-1] * HOP < _LEAST
    return starts[:-1] if is_short and len(starts) > 1 else starts
