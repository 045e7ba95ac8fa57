"""Agreement of codes with the reference, counted overall and per SNAC level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.frames import LEVELS, SLOTS_OF_LEVEL

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Limits:
    """Least shares of equal codes, 0..1, that a shard must reach."""

    overall: float
    level: float


def limits_for(device_type: str, precision: str) -> Limits:
    """Limits of a device: equal on the CPU; nearly so on a GPU, which sums in another order.

    Reduced precision is asked for knowingly: its agreement is recorded and has no limit.
    """
    if precision != "fp32":
        return Limits(0.0, 0.0)
    return Limits(1.0, 1.0) if device_type == "cpu" else Limits(0.999, 0.995)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Equal codes and codes in all, by level."""

    equal: tuple[int, ...]
    total: tuple[int, ...]

    @classmethod
    def empty(cls) -> Agreement:
        """Nothing compared yet."""
        return cls((0,) * LEVELS, (0,) * LEVELS)

    def add(self, reference: NDArray[np.uint16], codes: NDArray[np.uint16]) -> Agreement:
        """This and one more clip's codes, both of shape (frames, 7)."""
        if reference.shape != codes.shape:
            raise ValueError(f"reference has shape {reference.shape}, codes {codes.shape}")
        same = reference == codes
        return Agreement(
            tuple(
                held + int(same[:, list(slots)].sum())
                for held, slots in zip(self.equal, SLOTS_OF_LEVEL, strict=True)
            ),
            tuple(
                held + len(codes) * len(slots)
                for held, slots in zip(self.total, SLOTS_OF_LEVEL, strict=True)
            ),
        )

    @property
    def overall(self) -> float:
        """Share of equal codes, 0..1; 1 when nothing was compared."""
        return sum(self.equal) / sum(self.total) if sum(self.total) else 1.0

    @property
    def levels(self) -> list[float]:
        """Share of equal codes of each level."""
        return [
            equal / total if total else 1.0
            for equal, total in zip(self.equal, self.total, strict=True)
        ]

    def faults(self, limits: Limits) -> list[str]:
        """Where agreement is below `limits`, one line each."""
        checks = [("overall", self.overall, limits.overall)]
        checks += [(f"level {i}", value, limits.level) for i, value in enumerate(self.levels)]
        return [
            f"{name} {value:.4%}, at least {least:.2%}"
            for name, value, least in checks
            if value < least
        ]
