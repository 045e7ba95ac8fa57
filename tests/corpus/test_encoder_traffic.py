"""Bytes and operations of the encoder's layers, against a hand's count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from snac import SNAC

from speech_assets.corpus.encoder_traffic import hours_per_min, traffic

CONFIG = Path(__file__).parents[2] / "server" / "snac_24khz" / "config.json"


def test_the_true_shape_moves_what_a_hand_counts() -> None:
    layers = {layer.name: layer for layer in traffic(json.loads(CONFIG.read_text()))}
    # 24,000 positions of 48 float32 are 4.608 MB.
    tensor = 24_000 * 48 * 4
    assert layers["first"].fused_bytes == 24_000 * 4 + 2 * tensor
    assert layers["block 0 unit 0"].least_bytes == 2 * tensor
    assert layers["block 0 unit 0"].fused_bytes == 4 * tensor
    assert layers["block 0 unit 2"].fused_bytes == 3 * tensor
    # Stride 2: 12,000 positions of 96.
    assert layers["block 0 downsampling"].fused_bytes == tensor + 2 * 12_000 * 96 * 4
    assert layers["block 0 downsampling"].product_flops == 2 * 12_000 * 96 * (4 * 48)
    assert layers["block 3 downsampling"].fused_bytes == 375 * 384 * 4 + 46.875 * 768 * 4
    assert layers["last"].rate_hz == 46.875
    whole = traffic(json.loads(CONFIG.read_text()))
    assert sum(layer.fused_bytes for layer in whole) == pytest.approx(170e6, rel=0.01)
    assert sum(layer.product_flops for layer in whole) == pytest.approx(4.65e9, rel=0.01)
    assert hours_per_min(whole, 4.8e12) == pytest.approx(471, rel=0.01)


def test_products_are_those_of_the_models_own_convolutions() -> None:
    config = json.loads(CONFIG.read_text())
    with torch.device("meta"):
        model = SNAC(**config)
    counted = 0
    wide = 0

    def count(layer: torch.nn.Conv1d, _: object, made: torch.Tensor) -> None:
        nonlocal counted, wide
        flops = 2 * made.numel() * layer.in_channels // layer.groups * layer.kernel_size[0]
        if layer.groups == 1 and layer.in_channels > 1:
            counted += flops
        else:
            wide += flops

    for layer in model.encoder.modules():
        if isinstance(layer, torch.nn.Conv1d):
            layer.register_forward_hook(count)  # pyright: ignore[reportArgumentType]
    seconds = 64 * 2_048 / 24_000
    model.encoder(torch.empty(1, 1, 64 * 2_048, device="meta"))
    layers = traffic(config)
    assert sum(layer.product_flops for layer in layers) * seconds == pytest.approx(counted)
    assert sum(layer.other_flops for layer in layers) * seconds > wide
