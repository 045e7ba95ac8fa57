"""The encoder's fused kernels give what the eager encoder gives: interpreted, and on a GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from interpreted_kernels import run_interpreted

from server.codec import Codec, load_codec
from server.codec_encoder import BatchEncoder, pad_clips
from server.codec_encoder_shapes import (
    Shape,
    Shapes,
    candidates,
    layer_key,
    read_shapes,
    shape_of,
    write_shapes,
)
from server.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
CODEC = ROOT / "server" / "embedded" / "codec"
HAS_TRITON = importlib.util.find_spec("triton") is not None
# Products as exact as float32, and what rounding leaves of the others: norm of error over norm.
LOUD = 1e7  # Times this, activations are beyond float16.
EXACT, LARGEST_ERROR = 2e-6, {"half": 3e-3, "tf32": 3e-3}


def small_codec(folder: Path) -> Codec:
    """SNAC 24 kHz' form with few channels, that are no powers of two, and random weights."""
    config = json.loads((CODEC / "config.json").read_text())
    config |= {"encoder_dim": 12, "decoder_dim": 64}
    (folder / "config.json").write_text(json.dumps(config))
    return load_codec(folder, allow_untrained=True)


def interpreted(folder: Path) -> None:
    """What the child of the test below runs, in a process whose Triton is an interpreter's."""
    from server.codec_encoder_fused import FusedEncoder

    codec = small_codec(folder)
    rng = np.random.default_rng(5)
    for lengths in ((3_000, 1_500), (2_048,)):
        clips = [rng.normal(0, 0.2, n).astype(np.float32) for n in lengths]
        batch, counts = pad_clips(clips)
        # A batch of equal clips has no mask.
        ends = None if len(set(counts)) == 1 else torch.tensor(counts)
        with torch.inference_mode():
            audio = torch.from_numpy(batch)
            exact = BatchEncoder(codec)._latents(audio[:, None], ends)
            for product in ("fp16x3", "half") if ends is not None else ("tf32x3",):
                dtype = torch.float16 if product == "half" else torch.float32
                fused = FusedEncoder(codec, product, dtype)
                # A program costs the interpreter the same however large it is.
                for layer in fused.layers():
                    key = layer_key(layer.kind, layer.channels, product)
                    fused.shapes[key] = Shape(1_024, 32 if layer.channels > 24 else 64, 256, 4)
                fused.shapes[layer_key("first", 12, product)] = Shape(2_048, 0, 1, 4)
                fused.shapes[layer_key("last", 192, product)] = Shape(16, 128, 1, 4)
                made = fused.latents(audio, ends)
                for row, count in enumerate(counts):
                    a, b = exact[row, :, : 4 * count], made[row, :, : 4 * count]
                    error = float((a - b).norm() / a.norm())
                    assert error < LARGEST_ERROR.get(product, EXACT), (product, row, error)
                if product == "fp16x3":
                    loud = audio * torch.tensor([1.0, LOUD])[:, None]
                    finite = fused.latents(loud, ends).isfinite().flatten(1).all(1)
                    assert finite.tolist() == [True, False]


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton: make test-kernels")
def test_interpreted_kernels_give_the_latents_of_the_eager_encoder(tmp_path: Path) -> None:
    run_interpreted(__file__, tmp_path, 600)


class Overflowing:
    """Fused kernels' latents, a row of them as float16 leaves what it cannot hold."""

    product = "fp16x3"

    def __init__(self, encoder: BatchEncoder, row: int, value: float) -> None:
        self._encoder, self._row, self._value = encoder, row, value

    def latents(self, audio: torch.Tensor, counts: torch.Tensor | None) -> torch.Tensor:
        latents = self._encoder._latents(audio[:, None], counts)
        latents[self._row, 3, 1] = self._value
        return latents


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_clip_that_float16_cannot_hold_is_encoded_again(value: float) -> None:
    codec = load_codec(CODEC)
    rng = np.random.default_rng(7)
    clips = [rng.normal(0, 0.1, n).astype(np.float32) for n in (5_000, 9_000, 7_000)]
    encoder = BatchEncoder(codec)
    expected = encoder.encode(clips)
    encoder.fused = Overflowing(encoder, 1, value)  # pyright: ignore[reportAttributeAccessIssue]
    batch, counts = pad_clips(clips)
    levels = encoder.launch(torch.from_numpy(batch), torch.tensor(counts))
    assert [bool((level[1] == -1).all()) for level in levels] == [True] * 3
    assert [bool((level[[0, 2]] >= 0).all()) for level in levels] == [True] * 3
    for codes, exact in zip(encoder.encode(clips), expected, strict=True):
        assert np.array_equal(codes, exact)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_clip_too_loud_for_float16_has_the_codes_that_float32_gives() -> None:
    codec = load_codec(CODEC, "cuda")
    clips = [np.random.default_rng(8).normal(0, scale, 9_000) for scale in (0.1, 0.1 * LOUD)]
    clips = [clip.astype(np.float32) for clip in clips]
    encoder = BatchEncoder(codec, kernels="triton", product="fp16x3")
    batch, _ = pad_clips(clips)
    levels = encoder.launch(torch.from_numpy(batch).cuda(), None)
    assert [bool((level[1] == -1).all()) for level in levels] == [True] * 3
    alone = BatchEncoder(codec, kernels="triton", product="tf32x3")
    for clip, codes in zip(clips, encoder.encode(clips), strict=True):
        assert np.array_equal(codes, alone.encode([clip])[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("product", ["tf32x3", "fp16x3", "ieee"])
def test_fused_kernels_give_the_codes_of_each_clip_alone(product: str) -> None:
    codec = load_codec(CODEC, "cuda")
    rng = np.random.default_rng(6)
    clips = [rng.normal(0, 0.1, n).astype(np.float32) for n in rng.integers(3_000, 90_000, 24)]
    encoder = BatchEncoder(codec, kernels="triton", product=product)  # pyright: ignore[reportArgumentType]
    assert encoder.fused is not None
    pairs = [
        (codec.encode(clip), codes)
        for clip, codes in zip(clips, encoder.encode(clips), strict=True)
    ]
    equal = sum(int((a == b).sum()) for a, b in pairs)
    assert equal >= 0.999 * sum(a.size for a, _ in pairs)


def test_without_a_gpu_layers_are_pytorchs_and_triton_is_refused() -> None:
    codec = load_codec(CODEC)
    assert BatchEncoder(codec).fused is None
    with pytest.raises(ConfigurationError, match="encoder kernels triton: they run on CUDA"):
        BatchEncoder(codec, kernels="triton")


def test_tuned_shapes_are_kept_and_others_are_the_tables(tmp_path: Path) -> None:
    tuned: Shapes = {layer_key("residual", 48, "tf32x3"): Shape(16, 16, 16, 1, 2)}
    write_shapes(tmp_path / "shapes.json", tuned)
    assert read_shapes(tmp_path / "shapes.json") == tuned
    assert shape_of(tuned, "residual", 48, "tf32x3") == Shape(16, 16, 16, 1, 2)
    assert shape_of(tuned, "residual", 48, "half") == candidates("residual", 48)[0]
    # A number of channels that is not in the table takes the next larger one's, or the largest.
    assert candidates("residual", 50) == candidates("residual", 96)
    assert candidates("downsampling", 5_000) == candidates("downsampling", 768)
    (tmp_path / "shapes.json").write_text('{"residual-48-tf32x3": {"blocks": 1}}')
    with pytest.raises(ConfigurationError, match="tune the encoder again"):
        read_shapes(tmp_path / "shapes.json")
