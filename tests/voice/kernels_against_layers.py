"""Print, as JSON, how far the fused kernels are from the package's layers on small inputs.

`test_kernels` runs this in a process of its own: without a GPU, Triton's interpreter has to be
chosen before Triton is imported for the first time.
"""

from __future__ import annotations

import copy
import json

import torch
from snac.layers import NoiseBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

from speech_assets.voice.kernels import fuse

CHANNELS = 4
LENGTHS = (37, 1100)  # Shorter than one block with its taps, and more than one block.


def main() -> None:
    """Compare a snake and residual units of SNAC's three dilations: output and every gradient."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    layers: dict[str, nn.Module] = {"snake": nn.Sequential(Snake1d(CHANNELS))}
    for dilation in (1, 3, 9):
        unit = ResidualUnit(CHANNELS, dilation=dilation, groups=CHANNELS)
        layers[f"unit, dilation {dilation}"] = unit
    made = {}
    for name, layer in layers.items():
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(0.5 + torch.rand_like(parameter))
        for length in LENGTHS:
            x = torch.randn(2, CHANNELS, length)
            made[f"{name}, {length} samples"] = differences(layer.to(device), x.to(device))
    made["noise"] = {"output": noise_difference(device)}
    print(json.dumps(made))


def differences(layer: nn.Module, x: Tensor) -> dict[str, float]:
    """Largest difference, over the largest value, of the output and each gradient."""
    fused = fuse(copy.deepcopy(layer))
    weight = torch.randn_like(x)
    results: list[dict[str, Tensor]] = []
    for module in (layer, fused):
        given = x.clone().requires_grad_()
        y = module(given)
        names, parameters = zip(*module.named_parameters(), strict=True)
        grads = torch.autograd.grad((y * weight).sum(), [given, *parameters])
        results.append(dict(zip(("output", "input", *names), (y, *grads), strict=True)))
    return {name: relative(results[1][name], value) for name, value in results[0].items()}


def noise_difference(device: str) -> float:
    """The same of a noise block's output, both with the same noise."""
    layer = NoiseBlock(CHANNELS).to(device)
    fused = fuse(copy.deepcopy(nn.Sequential(layer)))
    x = torch.randn(2, CHANNELS, 50, device=device)
    results = []
    for module in (layer, fused):
        torch.manual_seed(1)
        results.append(module(x))
    return relative(results[1], results[0])


def relative(value: Tensor, wanted: Tensor) -> float:
    """Largest difference over the largest magnitude."""
    assert value.shape == wanted.shape
    value, wanted = value.detach(), wanted.detach()
    return float((value - wanted).abs().max() / wanted.abs().max())


if __name__ == "__main__":
    main()
