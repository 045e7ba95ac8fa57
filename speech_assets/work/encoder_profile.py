"""What the device's time goes to while a batch is encoded, by families of kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile

from server.frames import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from speech_assets.work.tokenizer import Tokenizer

FAMILIES: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "residual units, fused": r"residual_unit",
        "downsampling, fused": r"downsampling",
        "first and last convolution, fused": r"first_convolution|last_convolution",
        "depthwise convolutions": r"depthwise|dgrouped|conv_depthwise",
        "convolutions": r"conv|implicit|cudnn|xmma|fprop",
        "matrix products": r"gemm|gemv|cutlass|cublas|nvjet|splitk|matmul|::mm|addmm",
        "copies": r"memcpy|memset|copy",
        "compiled": r"triton_",
        "reductions": r"reduce|arg_?max|max_|norm|softmax",
        "elementwise": r"elementwise|vectorized|snake|sin|mul|add|pow",
    }.items()
}
"""Families by a kernel's name, the first that fits."""
OTHER = "other"


def family(name: str) -> str:
    """The family of a kernel by its name."""
    return next((known for known, pattern in FAMILIES.items() if pattern.search(name)), OTHER)


def profile_rows(tokenizer: Tokenizer, clips: list[NDArray[np.int16]]) -> list[dict[str, Any]]:
    """Time of each family while `clips` are encoded once more, longest first.

    On a GPU of its kernels; on a CPU, whose operations call each other, of each one's own time.
    """
    cuda = tokenizer.codec.device.type == "cuda"
    tokenizer.encode(clips)
    activities = [ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        tokenizer.encode(clips)
    audio_s = sum(map(len, clips)) / SAMPLE_RATE_HZ
    spent_us: dict[str, float] = {}
    calls: dict[str, int] = {}
    for event in profiler.key_averages():
        # A GPU's kernels have no time on the host; the host's calls none of their own on the GPU.
        us = event.self_device_time_total if cuda else event.self_cpu_time_total
        if not us:
            continue
        name = family(event.key)
        spent_us[name] = spent_us.get(name, 0.0) + us
        calls[name] = calls.get(name, 0) + event.count
    whole_us = sum(spent_us.values()) or 1.0
    return [
        {
            "family": name,
            "share": us / whole_us,
            "us_per_audio_s": us / audio_s,
            "calls": calls[name],
        }
        for name, us in sorted(spent_us.items(), key=lambda item: -item[1])
    ]
