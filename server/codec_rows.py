"""Rows of a codec call: hops of utterances, and the one array that carries them to a device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from server import frames
from server.codec_network import Rows
from server.codec_noise import fold_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from server.codec_geometry import Geometry

_NUMBERS = 3  # start, end and seed, after a staged row's codes


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One hop of one utterance.

    Attributes:
        codes: the utterance's codes so far in slot order, of shape (tokens,), 0..4,095.
        start: first latent to emit.
        latents: latents to emit, at most four a frame of the hop.
        end: latents that have their codes (`frames.latents_ready`), or fewer. What lies beyond is
            decoded as what lies beyond an utterance's end: exact there, and before it the source
            of the right-context error.
        seed: of the utterance's noise.
    """

    codes: NDArray[np.integer]
    start: int
    latents: int
    end: int
    seed: int


def staged_width(geometry: Geometry) -> int:
    """Numbers in a staged row."""
    return frames.LEVELS * len(geometry.codes) + _NUMBERS


def stage_rows(geometry: Geometry, rows: Sequence[DecodeRow]) -> NDArray[np.int64]:
    """Rows as int64 of shape (rows, staged width): codes of each level, then start, end, seed.

    Raises:
        ValueError: a row does not fit the geometry, its end is beyond its codes, or a code is not
            one (on a GPU that would end the process); the message names the row.
    """
    staged = np.empty((len(rows), staged_width(geometry)), np.int64)
    per_frame = frames.LATENTS_PER_FRAME
    for index, row in enumerate(rows):
        _check_row(geometry, row, index)
        frame, phase = divmod(row.start + geometry.codes.low, per_frame)
        offsets = _offsets(len(geometry.codes), phase) + frame * frames.TOKENS_PER_FRAME
        # Latents outside the utterance take any code: the masks take them out.
        staged[index, :-_NUMBERS] = row.codes.take(offsets, mode="clip")
        staged[index, -_NUMBERS:] = row.start, row.end, fold_seed(row.seed)
    codes = staged[:, :-_NUMBERS]
    wrong = (codes < 0) | (codes >= frames.CODEBOOK_SIZE)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"row {row}: code {codes[row, column]} is outside 0..{frames.CODEBOOK_SIZE - 1}; give"
            " codes, not token ids"
        )
    return staged


def unstage_rows(staged: Tensor) -> Rows:
    """Views of staged rows on a device, as the network takes them."""
    codes = staged[:, :-_NUMBERS].unflatten(1, (frames.LEVELS, -1))
    return Rows(codes, staged[:, -3:-2], staged[:, -2:-1], staged[:, -1:])


def staged_numbers(
    staged: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Starts, ends and folded seeds of staged rows, each of shape (rows,)."""
    return staged[:, -3], staged[:, -2], staged[:, -1]


def _check_row(geometry: Geometry, row: DecodeRow, index: int) -> None:
    if row.start < 0 or not 0 < row.latents <= geometry.latents:
        raise ValueError(
            f"row {index}: {row.latents} latents from {row.start} do not fit a hop of"
            f" {geometry.latents} latents; plan it with a larger hop or as two rows"
        )
    ready = frames.latents_ready(len(row.codes))
    if not row.start + row.latents <= row.end <= ready:
        raise ValueError(
            f"row {index}: latents {row.start} to {row.start + row.latents} with end {row.end} and"
            f" {len(row.codes)} codes ({ready} latents); emit no latent before its codes are there"
        )


@cache
def _offsets(latents: int, phase: int) -> NDArray[np.int64]:
    """Where in slot order the codes of consecutive latents lie, level by level.

    Counted from the frame of the first latent, which is its frame's latent `phase`.
    """
    frame, latent = np.divmod(phase + np.arange(latents), frames.LATENTS_PER_FRAME)
    return np.concatenate(
        [
            frame * frames.TOKENS_PER_FRAME
            + np.array(slots)[latent * len(slots) // frames.LATENTS_PER_FRAME]
            for slots in frames.SLOTS_OF_LEVEL
        ]
    )
