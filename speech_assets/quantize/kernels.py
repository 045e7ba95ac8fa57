"""Where the time of decode steps goes: shares of kernel families, of the head, of idle time."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import torch
from torch._C._autograd import DeviceType  # Where torch says that it is from.
from torch.profiler import ProfilerActivity, profile, record_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HEAD = "speech: head"  # Name of the range around `compute_logits`.
FAMILIES: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "attention": r"flash|fmha|attention|attn|paged|reshape_and_cache|concat_and_cache",
        "matrix products": r"gemm|gemv|marlin|machete|cutlass|nvjet|cublas|splitk|wna16|scaled_mm"
        r"|linear|matmul|onednn|(?:^|[:_])(?:add|b)?mm(?:$|[_.])",
        "sampling": r"sampl|top_?[kp]|sort|softmax|gumbel|arg_?max|penalt|multinomial|exponential"
        r"|cumsum|\bscan|radix|philox|random|bincount|min_p|temperature|logprob",
        "norms and activations": r"triton_(?:red|poi|per)_fused|norm|silu|gelu|swiglu|act_and_mul"
        r"|rotary|rope|fp8_quant|scaled_quant",
        "copies": r"memcpy|memset|copy|cat(?:$|_|array)|gather|scatter|index|embedding|fill"
        r"|slice|aten::to$",
    }.items()
}
"""Kernel families by the name of a kernel or operation, the first that fits."""
OTHER = "other"


def family(name: str) -> str:
    """The family of a kernel (`nvjet_tst_64x8_...`) or operation (`aten::mm`) by its name."""
    return next((known for known, pattern in FAMILIES.items() if pattern.search(name)), OTHER)


def profile_rows(
    run: Callable[[], object], device: str, head_owners: Iterable[type]
) -> list[dict[str, Any]]:
    """Rows `profile`, `share`, `ms` of what `run` spends; shares of its whole time.

    On a GPU of kernels, and idle is the time without one. On a CPU of operations of torch, and what
    is left is Python and numpy, the sampler with them. `head` lies across families: all that
    `compute_logits` of `head_owners` calls. The profiler slows the host, so that idle time and
    Python are upper bounds.
    """
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    originals = {owner: owner.__dict__["compute_logits"] for owner in head_owners}
    for owner, original in originals.items():
        owner.compute_logits = _in_range(original)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with profile(activities=activities) as found:
            began_s = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            taken_us = (time.perf_counter() - began_s) * 1e6
    finally:
        for owner, original in originals.items():
            owner.compute_logits = original  # pyright: ignore[reportAttributeAccessIssue]
    parts = _of_kernels(found, taken_us) if device == "cuda" else _of_operations(found, taken_us)
    return [
        {"profile": name, "share": part_us / taken_us, "ms": part_us / 1e3}
        for name, part_us in parts.items()
    ]


def busy_us(spans: Iterable[tuple[float, float]]) -> float:
    """Time that any of `spans` (start, end) covers; where they overlap it counts once."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _in_range(method: Callable[..., Any]) -> Callable[..., Any]:
    def compute_logits(*arguments: Any, **named: Any) -> Any:
        with record_function(HEAD):
            return method(*arguments, **named)

    return compute_logits


def _of_kernels(found: Any, taken_us: float) -> dict[str, float]:
    parts = dict.fromkeys([*FAMILIES, OTHER], 0.0)
    spans: list[tuple[float, float]] = []
    head_us = 0.0
    for event in found.events():
        if event.device_type == DeviceType.CPU:
            head_us += float(event.device_time_total) if event.name == HEAD else 0.0
        elif event.name != HEAD and not getattr(event, "is_user_annotation", False):
            # Ranges, also those of compiled code, are shown on the device as if they ran there.
            start, end = float(event.time_range.start), float(event.time_range.end)
            spans.append((start, end))
            parts[family(event.name)] += end - start
    return {**parts, "idle": taken_us - busy_us(spans), "head": head_us}


def _of_operations(found: Any, taken_us: float) -> dict[str, float]:
    parts = dict.fromkeys([*FAMILIES, OTHER], 0.0)
    head_us = 0.0
    for entry in found.key_averages():
        if entry.key == HEAD:
            head_us = float(entry.cpu_time_total)
        else:
            parts[family(entry.key)] += float(entry.self_cpu_time_total)
    return {**parts, "python": max(0.0, taken_us - sum(parts.values())), "head": head_us}
