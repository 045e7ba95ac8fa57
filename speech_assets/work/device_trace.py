"""What a GPU does while a server runs: time of the codec's kernels, of the model's, and of none.

CUPTI sees the kernels of all threads of a process. It does not slow Python, but makes each kernel
begin a little later: idle time is an upper bound.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.quantize.kernel_families import family
from speech_assets.quantize.kernels import busy_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CODEC_KERNELS = ("depthwise", "pointwise", "upsampling", "last_convolution")
"""Names of the codec's own kernels: where one runs, the stream is the codec's."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel or copy on a GPU: its CUDA stream, start and end in microseconds."""

    name: str
    stream: int
    start_us: float
    end_us: float


def kernels_of(events: Iterable[Any]) -> list[Kernel]:
    """Kernels and copies among a profiler's events."""
    from torch._C._autograd import DeviceType  # Where torch says that it is from.

    return [
        Kernel(
            event.name,
            int(event.device_resource_id),
            float(event.time_range.start),
            float(event.time_range.end),
        )
        for event in events
        if event.device_type != DeviceType.CPU and not getattr(event, "is_user_annotation", False)
    ]


def trace_row(kernels: Sequence[Kernel], steps: int) -> dict[str, Any]:
    """Milliseconds a step, of `steps` that the kernels are of; nothing where there is neither.

    `codec_ms` is the time in which the codec's streams are busy, `lm_ms` that of all others;
    `overlap_ms` both at once; `idle_ms` neither. `kernel_ms` is of the model's kernels by family.
    """
    if not kernels or not steps:
        return {}
    of_codec = {
        kernel.stream for kernel in kernels if any(name in kernel.name for name in CODEC_KERNELS)
    }
    spans: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    families: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        is_codec = kernel.stream in of_codec
        spans[is_codec].append((kernel.start_us, kernel.end_us))
        if not is_codec:
            families[family(kernel.name)] += kernel.end_us - kernel.start_us
    codec_us, lm_us = busy_us(spans[True]), busy_us(spans[False])
    both_us = busy_us([*spans[True], *spans[False]])
    whole_us = max(k.end_us for k in kernels) - min(k.start_us for k in kernels)
    scale = 1e-3 / steps
    return {
        "traced_steps": steps,
        "lm_ms": lm_us * scale,
        "codec_ms": codec_us * scale,
        "overlap_ms": (codec_us + lm_us - both_us) * scale,
        "idle_ms": (whole_us - both_us) * scale,
        "kernel_ms": {name: taken_us * scale for name, taken_us in sorted(families.items())},
    }
