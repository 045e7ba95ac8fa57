"""What the speaker encoder makes of a clip, and how alike two are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Why = Literal["", "silent", "too_short"]


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """The voice of a clip, float32 (256,) of length 1; None, and why, where none can be told."""

    embedding: NDArray[np.float32] | None = None
    why: Why = ""


def cosine(one: Voice, other: Voice) -> float | None:
    """1 for the same voice, 0 for voices that have nothing in common; None where either has none.

    It is not below 0: no number of an embedding is.
    """
    if one.embedding is None or other.embedding is None:
        return None
    return float(one.embedding @ other.embedding)
