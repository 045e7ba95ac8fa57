"""Clips with a natural lead-in: faint noise before speech, as in Orpheus, and enough after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speech_assets.voice.codes import SAMPLES_PER_FRAME
from speech_assets.voice.packs import SAMPLE_RATE_HZ, Utterance

LEAD_IN_S = (0.2, 0.6)
TAIL_S = 0.35
AUDIBLE = 0.02  # Of the clip's peak.
_FLOOR_SAMPLES = 1440  # Start of a clip that is taken for its floor.


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a clip begins in its padded form, and how many whole frames that has."""

    before_samples: int
    frames: int


def audible_part(clip: Utterance) -> tuple[int, int]:
    """First audible sample, and the one after the last."""
    level = np.abs(clip.samples.astype(np.int32))
    audible = np.flatnonzero(level > AUDIBLE * level.max())
    return int(audible[0]), int(audible[-1]) + 1


def place(clip: Utterance, audible: tuple[int, int], rng: np.random.Generator) -> Placement:
    """A random lead-in before the first audible sample and at least `TAIL_S` after the last one.

    The lead-in also decides how speech falls on the frame grid, so each draw gives other codes.
    """
    onset, end = audible
    lead = round(rng.uniform(*LEAD_IN_S) * SAMPLE_RATE_HZ)
    before = max(0, lead - onset)
    samples = before + max(len(clip.samples), end + round(TAIL_S * SAMPLE_RATE_HZ))
    return Placement(before, -(-samples // SAMPLES_PER_FRAME))


def pad_batch(
    clips: list[Utterance],
    placements: list[Placement],
    *,
    device: torch.device,
    generator: torch.Generator,
) -> Tensor:
    """Clips in noise of their own floor, float32 (batch, 1, samples) of whole frames."""
    length = max(p.frames for p in placements) * SAMPLES_PER_FRAME
    joined = torch.from_numpy(np.concatenate([c.samples for c in clips])).to(device)
    sizes = torch.tensor([len(c.samples) for c in clips], device=device)[:, None]
    starts = sizes.cumsum(0) - sizes
    before = torch.tensor([p.before_samples for p in placements], device=device)[:, None]
    floors = [c.samples[:_FLOOR_SAMPLES].astype(np.float32).std() for c in clips]
    floor = torch.tensor(np.clip(floors, 0.5, 8.0), device=device)[:, None]
    at = torch.arange(length, device=device)[None] - before
    inside = (at >= 0) & (at < sizes)
    speech = joined[(starts + at).clamp(0, len(joined) - 1)].float()
    noise = floor * torch.randn(len(clips), length, device=device, generator=generator)
    return (torch.where(inside, speech, noise) / 32768)[:, None]
