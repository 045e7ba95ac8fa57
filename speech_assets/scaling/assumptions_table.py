"""The table of assumptions: each with its value, label, source and date."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from speech_assets.results.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speech_assets.scaling.assumptions import Assumptions, Model, Value

_SIZES = ("hidden", "inner", "layers", "query_heads", "kv_heads", "head_size")


def assumptions_table(assumptions: Assumptions) -> str:
    """Single values, prices, devices and models; what others published stands in tables of its own.

    That is beside what it is compared with.
    """
    return table(("name", "value", "label", "source", "date"), list(_rows(assumptions)))


def _rows(assumptions: Assumptions) -> Iterator[tuple[str, str, str, str, str]]:
    for field in fields(assumptions.values):
        value: Value = getattr(assumptions.values, field.name)
        yield (
            f"`{field.name}`",
            f"{value.value:,.12g} {value.unit}",
            value.label,
            value.source,
            value.date,
        )
    for price in assumptions.prices:
        shown = f"{price.per_hour:g} money/h"
        yield f"price of an {price.device}", shown, price.label, price.source, price.date
    for device in assumptions.devices:
        shown = (
            f"{device.memory_gb:g} GB, {device.bandwidth_gb_per_s:,g} GB/s, "
            f"{device.bf16_tflops:g} TFLOPS in bf16"
        )
        yield f"device {device.name}", shown, device.label, device.source, device.date
    for model in assumptions.models:
        yield f"model {model.name}", _sizes(model), model.label, model.source, model.date


def _sizes(model: Model) -> str:
    sizes = asdict(model.llama)
    shown = ", ".join(f"{name} {sizes[name]:,}" for name in _SIZES)
    return f"{shown}; {'head tied to the embedding' if model.tied else 'head of its own'}"
