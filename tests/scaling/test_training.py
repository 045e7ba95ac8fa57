"""Training's arithmetic, memory and traffic, and decoding by bandwidth, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speech_assets.quantize.shapes import SHAPES, LlamaShape
from speech_assets.scaling.assumptions_file import load_assumptions
from speech_assets.scaling.bandwidth import (
    held_against_others,
    measured_steps,
    most_tokens_per_s,
)
from speech_assets.scaling.layouts import LAYOUTS, Cluster, Layout, Pass
from speech_assets.scaling.memory import Memory, fit, llama_layer_bytes, memory_per_gpu
from speech_assets.scaling.traffic import traffic_per_step
from speech_assets.scaling.training import (
    attention_flops,
    gpu_hours,
    layer_parameters,
    multiplied_parameters,
    parameters,
    training_flops,
)
from speech_assets.scaling.training_tables import bandwidth_table, training_table

ASSUMPTIONS = load_assumptions()
# Two layers of q 8x4, k and v 4x4, o 4x8, gate and up 6x4, down 4x6: 168 numbers, and two norms
# of 4; an embedding of 10 x 4, a last norm.
SMALL = LlamaShape(10, 4, 6, 2, 2, 1, 4)
ALL = 2 * (168 + 8) + 40 + 4
CLUSTER, BATCH = Cluster(4, 2, 2), Pass(2, 4)


def test_every_parameter_is_counted_once() -> None:
    assert parameters(SMALL, tied=True) == ALL == 396
    assert parameters(SMALL, tied=False) == ALL + 40
    assert layer_parameters(SMALL) == 176
    assert multiplied_parameters(SMALL) == 2 * 168 + 40


def test_orpheus_has_the_parameters_that_its_shape_gives() -> None:
    # A layer: q and o 2 x 3,072^2, k and v 2 x 1,024 x 3,072, MLP 3 x 8,192 x 3,072:
    # 100,663,296; 28 of them; 57 norms of 3,072; an embedding of 156,940 x 3,072.
    shape = SHAPES["orpheus-3b"]
    assert parameters(shape, tied=True) == 28 * 100_663_296 + 57 * 3_072 + 482_119_680
    assert multiplied_parameters(shape) == 28 * 100_663_296 + 482_119_680


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("150M", 145e6, 155e6), ("1B", 1.2e9, 1.3e9), ("3B", 3.3e9, 3.4e9), ("8B", 8.0e9, 8.3e9)],
)
def test_models_are_as_large_as_their_names_say(name: str, least: float, most: float) -> None:
    [model] = [model for model in ASSUMPTIONS.models if model.name == name]
    assert least < parameters(model.llama, tied=model.tied) < most


def test_flops_are_six_a_parameter_and_token_and_attention_stands_apart() -> None:
    assert training_flops(SMALL, 10) == 6 * 376 * 10
    # 12 x 2 layers x 2 heads of 4 x 5 tokens of sequence, for each of 10 tokens.
    assert attention_flops(SMALL, 10, 5) == 9_600


@pytest.mark.parametrize(("size", "hours"), [(800e6, 2_005), (4.8e9, 12_032)])
def test_gpu_hours_agree_with_what_others_worked_out(size: float, hours: float) -> None:
    # The reference project: 5.95e11 tokens at 40 % of 989 TFLOPS.
    assert gpu_hours(6 * size * 5.95e11, 989, 0.4) == pytest.approx(hours, abs=1)


def test_a_gpu_hour_is_what_a_gpu_does_in_an_hour() -> None:
    assert gpu_hours(3_600 * 1e12 * 0.5, 1.0, 0.5) == 1.0


# 16 bytes x 396; 34 x 8 tokens x 4 x 2 layers, or 2 x 8 x 4 x 2 + 34 x 8 x 4; 4 x 8 x 10.
# Gathered: root 396 - 2 x 176 = 44; 2 x (44 + 352) + 2 x 176.
@pytest.mark.parametrize(
    ("layout", "state", "gathered", "activations", "recomputed", "logits"),
    [
        ("DDP", 6_336, 0, 2_176, 1_216, 320),
        ("FSDP", 1_584, 1_144, 2_176, 1_216, 320),
        ("HSDP", 3_168, 1_144, 2_176, 1_216, 320),
        ("TP", 3_168, 0, 1_088, 608, 160),
    ],
)
def test_memory_is_as_worked_out_by_hand(
    layout: Layout, state: int, gathered: int, activations: int, recomputed: int, logits: int
) -> None:
    kept = memory_per_gpu(SMALL, layout, CLUSTER, BATCH, tied=True)
    assert kept == Memory(state, gathered, activations, logits)
    assert kept.total_bytes == state + gathered + activations + logits
    again = memory_per_gpu(SMALL, layout, CLUSTER, BATCH, tied=True, recompute=True)
    assert again == Memory(state, gathered, recomputed, logits)


def test_an_embedding_larger_than_a_layer_is_the_largest_that_is_gathered() -> None:
    wide = LlamaShape(1_000, 4, 6, 2, 2, 1, 4)  # Root: 4,000 and a norm of 4.
    found = memory_per_gpu(wide, "FSDP", CLUSTER, BATCH, tied=True)
    assert found.gathered_bytes == 2 * (4_004 + 352) + 2 * 4_004


def test_a_llamas_layer_is_counted_from_what_its_operations_keep() -> None:
    # Norms in and out 4 x 4; q and attention's output 2 x 8; k and v 2 x 4; MLP 3 x 6: 58 numbers
    # of 2 bytes, over 4. Of Orpheus: 4 + 2 + 2/3 + 8 numbers a number, of 2 bytes.
    assert llama_layer_bytes(SMALL) == 29.0
    assert llama_layer_bytes(SHAPES["orpheus-3b"]) == pytest.approx(29.333, abs=1e-3)


def test_a_gpu_holds_what_is_within_its_memory_less_the_reserve() -> None:
    def of(gb: float) -> Memory:
        return Memory(gb * 1e9, 0, 0, 0)

    # A tenth of 80 GB is left free.
    assert fit(of(72), of(60), 80, 0.1) == "yes"
    assert fit(of(72.1), of(72), 80, 0.1) == "with recomputation"
    assert fit(of(90), of(72.1), 80, 0.1) == "no"


@pytest.mark.parametrize(
    ("layout", "in_node", "between"),
    [
        ("DDP", 0, 1_188),  # 2 x 792 x 3/4
        ("FSDP", 0, 1_782),  # 3 x 792 x 3/4
        ("HSDP", 1_188, 396),  # 3 x 792 x 1/2; 2 x 396 x 1/2
        ("TP", 512, 396),  # 4 x 2 layers, each 2 x (2 x 8 x 4) x 1/2; 2 x 396 x 1/2
    ],
)
def test_traffic_is_as_worked_out_by_hand(layout: Layout, in_node: int, between: int) -> None:
    sent = traffic_per_step(SMALL, layout, CLUSTER, BATCH, tied=True)
    assert (sent.in_node_bytes, sent.between_nodes_bytes) == (in_node, between)
    assert sent.seconds(2e-9, 1e-9) == pytest.approx(in_node / 2 + between)


def test_a_cluster_of_one_node_sends_nothing_to_others() -> None:
    for layout in LAYOUTS:
        sent = traffic_per_step(SMALL, layout, Cluster(2, 2, 2), BATCH, tied=True)
        assert sent.between_nodes_bytes == 0
        assert sent.in_node_bytes > 0
    alone = traffic_per_step(SMALL, "DDP", Cluster(1, 1, 1), BATCH, tied=True)
    assert (alone.in_node_bytes, alone.between_nodes_bytes) == (0, 0)


def test_a_cluster_has_whole_nodes_and_groups_within_them() -> None:
    with pytest.raises(ValueError, match="12 GPUs are no whole nodes of 8"):
        Cluster(12, 8, 8)
    with pytest.raises(ValueError, match="groups of 3 do not fill a node of 8"):
        Cluster(16, 8, 3)


@settings(deadline=None)
@given(st.sampled_from(LAYOUTS), st.integers(1, 6), st.integers(1, 64), st.booleans())
def test_more_nodes_never_take_more_memory_nor_send_less(
    layout: Layout, nodes: int, tokens: int, tied: bool
) -> None:
    one, more = (
        (memory_per_gpu(SMALL, layout, cluster, Pass(1, tokens), tied=tied).total_bytes,
         traffic_per_step(SMALL, layout, cluster, Pass(1, tokens), tied=tied).between_nodes_bytes)
        for cluster in (Cluster(2 * nodes, 2, 2), Cluster(4 * nodes, 2, 2))
    )  # fmt: skip
    assert more[0] <= one[0]
    assert more[1] >= one[1]


@settings(deadline=None)
@given(st.sampled_from(LAYOUTS), st.integers(1, 64), st.integers(0, 64))
def test_recomputing_and_fewer_tokens_never_take_more_memory(
    layout: Layout, tokens: int, more: int
) -> None:
    def taken(tokens: int, *, recompute: bool) -> float:
        deep = LlamaShape(10, 4, 6, 3, 2, 1, 4)
        found = memory_per_gpu(
            deep, layout, CLUSTER, Pass(1, tokens), tied=True, recompute=recompute
        )
        return found.total_bytes

    assert taken(tokens, recompute=True) < taken(tokens, recompute=False)
    assert taken(tokens, recompute=False) <= taken(tokens + more, recompute=False)


def speed(preset: str, bytes_per_step: int, streams: int = 1, **changed: Any) -> dict[str, Any]:
    """A result of kind decode_speed as a file has it."""
    figures = {"bytes_per_step": bytes_per_step, "tokens_per_s": 371.4, "floor_share": 0.58}
    given: dict[str, Any] = {
        "device": {"name": "NVIDIA H200"},
        "reduced": False,
        "config": {"preset": preset, "measurement": {"streams": streams}},
        "figures": {name: {"value": value} for name, value in figures.items()},
    }
    return {**given, **changed}


def test_the_most_that_a_device_decodes_is_its_bandwidth_over_the_bytes_of_a_step() -> None:
    assert most_tokens_per_s(300, 6_000_000_000) == 50.0
    steps = measured_steps(
        [
            speed("fp8", 3_000_000_000, reduced=True),
            speed("bf16", 6_000_000_000),
            speed("bf16", 6_000_000_000, streams=8),
            speed("embedded-bf16", 25_000_000),
        ]
    )
    assert [step.preset for step in steps] == ["bf16", "fp8 (reduced)"]
    text = bandwidth_table(steps, ASSUMPTIONS)
    # 300, 864, 3,350 and 4,800 GB/s over 6 GB; realtime is 82.03 tokens/s.
    assert (
        "| bf16 | 6.000 | 50 (0.61 x realtime) | 144 (1.76 x realtime) | 558 (6.81 x realtime) "
        "| 800 (9.75 x realtime) | NVIDIA H200 | 371 | 58% |"
    ) in text


def test_what_others_measured_is_below_the_prediction_and_not_far() -> None:
    held = held_against_others(ASSUMPTIONS)
    # bf16 reads 6.602 GB: 300 / 6.602 = 45.4 tokens/s, and 36.5 were measured.
    assert held[0].most_tokens_per_s == pytest.approx(45.4, abs=0.1)
    assert held[0].share == pytest.approx(0.80, abs=0.005)
    assert all(0.5 < one.share < 1 for one in held)


def test_the_training_table_has_a_row_for_each_model() -> None:
    lines = training_table(ASSUMPTIONS).splitlines()
    assert len(lines) == 2 + len(ASSUMPTIONS.models)
    [row] = [line for line in lines if line.startswith("| 3B |")]
    # 6 x 3.3007e9 x 5.9497e11 = 1.178e22; over 989e12 x 0.4 x 3,600 = 1.424e18 an hour.
    assert "| 3,300,867,072 |" in row
    assert "| 1.18e+22 |" in row
    assert "| 8,274 |" in row
