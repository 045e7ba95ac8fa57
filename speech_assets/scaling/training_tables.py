"""Tables of predictions: training's arithmetic, memory and traffic, and decoding by bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.results.markdown import table
from speech_assets.scaling.bandwidth import held_against_others, most_tokens_per_s
from speech_assets.scaling.layouts import LAYOUTS, Layout
from speech_assets.scaling.memory import fit, llama_layer_bytes, memory_per_gpu
from speech_assets.scaling.numbers import count, gb, rounded
from speech_assets.scaling.tokenize_tables import corpus_size
from speech_assets.scaling.traffic import traffic_per_step
from speech_assets.scaling.training import (
    attention_flops,
    gpu_hours,
    multiplied_parameters,
    parameters,
    training_flops,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.scaling.assumptions import Assumptions, Model
    from speech_assets.scaling.bandwidth import Step


def training_table(assumptions: Assumptions) -> str:
    """FLOPs and GPU-hours of one epoch over the corpus' audio tokens, for each model."""
    values = assumptions.values
    tokens, mfu = corpus_size(assumptions).tokens, values.mfu.value
    heads = (
        "model", "parameters", "N, multiplied by each token", "D, tokens", "6 N D, FLOPs",
        f"attention at {values.sequence_tokens.value:,g} tokens adds",
        *(f"GPU-hours on {device.name}" for device in assumptions.devices),
        f"with attention, on {assumptions.training_device}",
    )  # fmt: skip
    peak = assumptions.device(assumptions.training_device).bf16_tflops
    rows: list[Sequence[str]] = []
    for model in assumptions.models:
        shape = model.llama
        flops = training_flops(shape, tokens)
        attention = attention_flops(shape, tokens, values.sequence_tokens.value)
        rows.append(
            (
                model.name,
                count(parameters(shape, tied=model.tied)),
                count(multiplied_parameters(shape)),
                f"{tokens:.4g}",
                f"{flops:.3g}",
                f"{attention / flops:.0%}",
                *(
                    rounded(gpu_hours(flops, device.bf16_tflops, mfu))
                    for device in assumptions.devices
                ),
                rounded(gpu_hours(flops + attention, peak, mfu)),
            )
        )
    return table(heads, rows)


def memory_table(assumptions: Assumptions) -> str:
    """What one GPU holds for each model and layout, and which GPUs hold it."""
    reserve = assumptions.values.memory_reserve.value
    cluster, batch = assumptions.cluster, assumptions.batch
    heads = (
        "model", "layout", "state, GB", "gathered, GB", "activations kept, GB",
        "recomputed, GB", "logits, GB", "all, kept, GB", "all, recomputed, GB",
        *(f"{device.memory_gb:g} GB ({device.name})" for device in assumptions.devices),
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for model, layout in _each(assumptions):
        kept = memory_per_gpu(model.llama, layout, cluster, batch, tied=model.tied)
        again = memory_per_gpu(model.llama, layout, cluster, batch, tied=model.tied, recompute=True)
        rows.append(
            (
                model.name,
                layout,
                gb(kept.state_bytes),
                gb(kept.gathered_bytes),
                gb(kept.activation_bytes),
                gb(again.activation_bytes),
                gb(kept.logits_bytes),
                gb(kept.total_bytes),
                gb(again.total_bytes),
                *(fit(kept, again, device.memory_gb, reserve) for device in assumptions.devices),
            )
        )
    layers = ", ".join(
        f"{llama_layer_bytes(model.llama):.1f} ({model.name})" for model in assumptions.models
    )
    return (
        f"{table(heads, rows)}\n\nCounted like the 34 bytes of a GPT's layer, a layer of these "
        f"models keeps {layers} bytes."
    )


def traffic_table(assumptions: Assumptions) -> str:
    """What one GPU sends in a step for each model and layout, beside the step's arithmetic."""
    values = assumptions.values
    cluster, batch = assumptions.cluster, assumptions.batch
    peak = assumptions.device(assumptions.training_device).bf16_tflops
    heads = (
        "model", "layout", "within the node, GB", "between nodes, GB",
        "at the links' rates, ms", f"6 N D of the step on {assumptions.training_device}, ms",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for model, layout in _each(assumptions):
        sent = traffic_per_step(model.llama, layout, cluster, batch, tied=model.tied)
        seconds = sent.seconds(values.node_gb_per_s.value, values.network_gb_per_s.value)
        split = cluster.tensor_degree if layout == "TP" else 1
        hours = gpu_hours(training_flops(model.llama, batch.tokens), peak, values.mfu.value)
        rows.append(
            (
                model.name,
                layout,
                gb(sent.in_node_bytes),
                gb(sent.between_nodes_bytes),
                rounded(seconds * 1e3),
                rounded(hours * 3_600e3 / split),
            )
        )
    return table(heads, rows)


def bandwidth_table(steps: Sequence[Step], assumptions: Assumptions) -> str:
    """The most tokens/s of each preset on each device, beside what was measured."""
    heads = (
        "preset", "GB read a step",
        *(f"{device.name}, tokens/s at most (prediction)" for device in assumptions.devices),
        "measured on", "tokens/s (measured)", "of the floor there (measured)",
    )  # fmt: skip
    rows = [
        (
            step.preset,
            f"{step.bytes_per_step / 1e9:.3f}",
            *(
                _times(most_tokens_per_s(device.bandwidth_gb_per_s, step.bytes_per_step))
                for device in assumptions.devices
            ),
            step.device,
            rounded(step.tokens_per_s),
            f"{step.floor_share:.0%}",
        )
        for step in steps
    ]
    return table(heads, rows)


def held_table(assumptions: Assumptions) -> str:
    """The prediction of bandwidth beside speeds that others published."""
    heads = (
        "precision, whole head", "device", "GB read a step", "tokens/s at most (prediction)",
        "tokens/s (published by others)", "share", "source",
    )  # fmt: skip
    rows = [
        (
            held.precision,
            held.device,
            f"{held.bytes_per_step / 1e9:.3f}",
            _times(held.most_tokens_per_s),
            f"{held.tokens_per_s:g}",
            f"{held.share:.0%}",
            held.source,
        )
        for held in held_against_others(assumptions)
    ]
    return table(heads, rows)


def _times(tokens_per_s: float) -> str:
    """Tokens/s, and how many times realtime that is."""
    return f"{rounded(tokens_per_s)} ({tokens_per_s / REALTIME_TOKENS_PER_S:.2f} x realtime)"


def _each(assumptions: Assumptions) -> list[tuple[Model, Layout]]:
    return [(model, layout) for model in assumptions.models for layout in LAYOUTS]
