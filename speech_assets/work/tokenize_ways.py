"""Ways of encoding that the ablation compares: one change a row, from 16 clips a batch on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from speech_assets.errors import ConfigError
from speech_assets.work.tokenizer import CPU_BATCH_SAMPLES, CUDA_BATCH_SAMPLES, EncodeOptions

FIXED_CLIPS = 16


@dataclass(frozen=True, slots=True)
class Way:
    """A name, what it encodes with, and the shards that are read ahead of the encoder."""

    name: str
    options: EncodeOptions
    read_ahead: int = 3
    cuda_only: bool = True


def ways_for(device_type: str, threads: int = 1) -> list[Way]:
    """The ablation's rows on a device, those first that cost no build."""
    cuda = device_type == "cuda"
    fixed = EncodeOptions(
        0, kernels="torch", batch_clips=FIXED_CLIPS, pinned=False, ahead=1, threads=threads
    )
    samples = CUDA_BATCH_SAMPLES if cuda else CPU_BATCH_SAMPLES
    budget = replace(fixed, batch_clips=0, batch_samples=samples)
    pinned = replace(budget, pinned=True, ahead=2)
    fused = replace(pinned, kernels="triton")
    ways = [
        Way("16 clips a batch", fixed, 1, cuda_only=False),
        Way("batches by samples", budget, 1, cuda_only=False),
        Way("pinned copies, one batch ahead", pinned, 1),
        Way("shards read ahead", pinned, cuda_only=False),
        Way("fused kernels, tf32x3", replace(fused, product="tf32x3")),
        Way("fused kernels, fp16x3", replace(fused, product="fp16x3")),
        Way("fused kernels, ieee", replace(fused, product="ieee")),
        Way("fused kernels, tf32", replace(fused, precision="tf32")),
        Way("fused kernels, fp16", replace(fused, precision="fp16")),
        Way("PyTorch, tf32", replace(pinned, precision="tf32")),
        Way("PyTorch, fp16", replace(pinned, precision="fp16")),
        Way("PyTorch, compiled", replace(pinned, compiled=True)),
    ]
    return [way for way in ways if cuda or not way.cuda_only]


def parse_ways(text: str, ways: list[Way]) -> list[Way]:
    """The ways that `text` names, separated by semicolons; all where it is empty.

    Raises:
        ConfigError: one is unknown.
    """
    known = {way.name: way for way in ways}
    names = [name.strip() for name in text.split(";") if name.strip()]
    for name in names:
        if name not in known:
            raise ConfigError(f"--ways {name!r}: of {'; '.join(known)}")
    return [known[name] for name in names] or ways
