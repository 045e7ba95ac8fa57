"""Whether the weights of an unquantized checkpoint are numbers: every one finite, no tensor empty.

A header says where tensors lie and not what is in them. A copy that broke off in a sparse file has
zeros where weights were, training that diverged has NaN, and both would be quantized, calibrated by
and served. Files are read once, in pieces: some 0.4 s a GB on one core beside the reading (float
weights are looked at as integers), and memory for one piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from server.checkpoint import checkpoint_files
from server.errors import WeightsError
from server.tensor_files import stored_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from server.tensor_files import StoredTensor

PIECE_BYTES = 8 << 20
_ZEROS = "is all zeros"
_FORMS = {
    # As unsigned integers: all but the sign, and the least of infinities and NaN.
    "F32": (np.dtype("<u4"), 0x7FFF_FFFF, 0x7F80_0000),
    "F16": (np.dtype("<u2"), 0x7FFF, 0x7C00),
    "BF16": (np.dtype("<u2"), 0x7FFF, 0x7F80),
}


def check_values(folder: Path) -> None:
    """Do nothing, if all weights of the plain checkpoint in `folder` can be used.

    Raises:
        WeightsError: one is not finite, or all of a tensor are zero.
    """
    for path in checkpoint_files(folder):
        tensors = stored_tensors(path)
        with path.open("rb") as file:
            for name, tensor in tensors.items():
                file.seek(tensor.start)
                fault = _fault(file.read, tensor) if tensor.dtype in _FORMS else ""
                if fault and not (fault == _ZEROS and name.endswith(".bias")):
                    raise WeightsError(
                        f"{path}: {name} {fault}; the model is damaged, or its training failed: "
                        "copy or download it again, or give another one"
                    )


def _fault(read: Callable[[int], bytes], tensor: StoredTensor) -> str:
    """What is wrong with the values of a tensor, whose bytes `read` gives; empty if nothing is."""
    dtype, magnitude, infinite = _FORMS[tensor.dtype]
    largest, left = 0, tensor.end - tensor.start
    while left:
        data = read(min(left, PIECE_BYTES))
        if not data:
            return "is cut short"
        left -= len(data)
        largest = max(largest, int((np.frombuffer(data, dtype) & magnitude).max()))
        if largest >= infinite:
            return "has values that are not finite"
    return "" if largest or tensor.start == tensor.end else _ZEROS
