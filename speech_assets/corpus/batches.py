"""Which clips are encoded together: batches of like lengths under a budget of padded samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.frames import SAMPLES_PER_FRAME

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan_batches(
    frame_counts: Sequence[int], budget_samples: int, *, round_frames: int = 1
) -> list[list[int]]:
    """Batches of clip indices, longest first; every index is in exactly one.

    A batch's padded size, clips x the longest of them in samples, stays within `budget_samples`; a
    clip longer than the budget is a batch by itself. Sorting by length keeps the padding small. The
    longest come first, so that a device too small for the budget fails at once and not at the end.

    Args:
        frame_counts: frames of each clip.
        budget_samples: padded samples of one call; 0 gives batches of one clip.
        round_frames: the length of a batch is rounded up to a multiple of this many frames, so
            that a compiled or tuned encoder sees few shapes.
    """
    order = sorted(range(len(frame_counts)), key=lambda clip: (-frame_counts[clip], clip))
    batches: list[list[int]] = []
    width_samples = 0
    for clip in order:
        if batches and (len(batches[-1]) + 1) * width_samples <= budget_samples:
            batches[-1].append(clip)
        else:
            batches.append([clip])
            width_samples = padded_frames(frame_counts[clip], round_frames) * SAMPLES_PER_FRAME
    return batches


def padded_frames(frames: int, round_frames: int) -> int:
    """`frames` rounded up to a multiple of `round_frames`."""
    return -(-frames // round_frames) * round_frames
