"""Operations on many tensors in one launch, for optimizer steps that are captured in a graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# torch offers them under private names only, and its own optimizers are built on them.
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false


def copy_each(targets: Sequence[Tensor | None], sources: Sequence[Tensor]) -> None:
    """Copy each of `sources` into its place of `targets` (gradients that were made before)."""
    torch._foreach_copy_([t for t in targets if t is not None], list(sources))


def lerp_each(targets: Sequence[Tensor], sources: Sequence[Tensor], weight: float) -> None:
    """Move each of `targets` by `weight` of its way to its place of `sources`."""
    torch._foreach_lerp_(list(targets), [s.detach() for s in sources], weight)
