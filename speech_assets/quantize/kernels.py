"""Where the time of decode steps goes: shares of kernel families, of the head, of idle time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch._C._autograd import DeviceType  # Where torch says that it is from.
from torch.profiler import ProfilerActivity, profile, record_function

from speech_assets.quantize.kernel_families import FAMILIES, OTHER, family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NAMED = 5  # Of the kernels of no known family, the largest.
HEAD = "speech: head"  # Name of the range around `compute_logits`.


def profile_rows(
    run: Callable[[], object], device: str, head_owners: Iterable[type]
) -> list[dict[str, Any]]:
    """Rows `profile`, `share`, `ms` of what `run` spends; shares of its whole time.

    On a GPU of kernels, and idle is the time without one. On a CPU of operations of torch, and what
    is left is Python and numpy, the sampler with them. `head` lies across families: all that
    `compute_logits` of `head_owners` calls. Row `other` names the largest of no known family. The
    profiler slows the host, so that idle time and Python are upper bounds.
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
    of_names = _of_kernels(found) if device == "cuda" else _of_operations(found)
    parts = dict.fromkeys([*FAMILIES, OTHER], 0.0)
    for name, part_us in of_names.items():
        parts[family(name)] += part_us
    if device == "cuda":
        parts["idle"] = taken_us - busy_us(_spans(found))
    else:
        parts["python"] = max(0.0, taken_us - sum(parts.values()))
    parts["head"] = _head_us(found, device)
    rows: list[dict[str, Any]] = [
        {"profile": name, "share": part_us / taken_us, "ms": part_us / 1e3}
        for name, part_us in parts.items()
    ]
    unknown = sorted(
        (name for name in of_names if family(name) == OTHER), key=of_names.__getitem__, reverse=True
    )
    for row in rows:
        if row["profile"] == OTHER:  # By name, so that families can be made of them.
            row["largest"] = unknown[:_NAMED]
    return rows


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


def _kernels(found: Any) -> list[Any]:
    """Events on the device, without ranges: those are shown there as if they ran, too."""
    return [
        event
        for event in found.events()
        if event.device_type != DeviceType.CPU
        and event.name != HEAD
        and not getattr(event, "is_user_annotation", False)
    ]


def _spans(found: Any) -> list[tuple[float, float]]:
    """Start and end of each kernel, microseconds."""
    ranges = [event.time_range for event in _kernels(found)]
    return [(float(one.start), float(one.end)) for one in ranges]


def _of_kernels(found: Any) -> dict[str, float]:
    """Microseconds of each kernel on the device, by name."""
    times_us: dict[str, float] = {}
    for event, (start, end) in zip(_kernels(found), _spans(found), strict=True):
        times_us[event.name] = times_us.get(event.name, 0.0) + end - start
    return times_us


def _of_operations(found: Any) -> dict[str, float]:
    """Microseconds of each operation of torch on a CPU, by name, without those that it calls."""
    return {
        entry.key: float(entry.self_cpu_time_total)
        for entry in found.key_averages()
        if entry.key != HEAD
    }


def _head_us(found: Any, device: str) -> float:
    """Microseconds of all that the head's range calls."""
    if device == "cuda":
        ranges = [event for event in found.events() if event.device_type == DeviceType.CPU]
        return sum(float(event.device_time_total) for event in ranges if event.name == HEAD)
    return sum(float(e.cpu_time_total) for e in found.key_averages() if e.key == HEAD)
