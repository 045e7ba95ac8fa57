"""The shapes of the encoder's fused kernels that are fastest on this GPU, by trying a few of each.

A candidate that does not build, or whose output differs from the first one's, is left out. What is
found is written as `server.codec_encoder_shapes` reads it, with the time of every candidate beside.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from server import frames
from server.codec import load_codec, use_exact_float32
from server.codec_encoder import FP32_PRODUCT
from server.codec_encoder_shapes import Product, Shapes, candidates, layer_key, write_shapes
from server.files import write_json
from speech_assets.errors import ConfigError
from speech_assets.work import worker

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from server.codec import Codec
    from server.codec_encoder_fused import FusedEncoder, Layer

CLIPS, CLIP_FRAMES = 16, 120  # 164 s of audio: what a call of 4,000,000 samples holds.
_WARM_UP, _TIMED = 2, 5
_MOST_ERROR = {"half": 2e-3}  # Norm of a candidate's difference from the first over the first's.
_MOST_ERROR_EXACT = 1e-5


def main() -> None:
    """Entry point of `python -m speech_assets.work.encoder_tuning`."""
    parser = worker.argument_parser("encoder_tuning", __doc__ or "")
    add = parser.add_argument
    add("--codec", type=Path, default=Path("server/embedded/codec"), help="folder of the codec")
    add("--allow-untrained", action="store_true", help="a shape with random weights")
    add("--products", default=FP32_PRODUCT, help=f"of {', '.join(get_args(Product))}, by commas")
    add("--part", type=_part, default="0/1", help="I/N: of the layers every N-th from I on")
    add("--candidates", type=worker.at_least(1), default=99, help="shapes of a layer, at most")
    add("--build-only", action="store_true", help="fill Triton's cache of builds, time nothing")
    add("--out", type=Path, required=True, help="file of the shapes")
    parser.set_defaults(
        out_is_file=True,
        when_interrupted="shapes of products that were finished are kept, and the next run begins "
        "anew",
    )
    worker.run(_work, parser)


def _part(text: str) -> slice:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 0 to N - 1")
    return slice(int(index), None, int(count))


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    if not torch.cuda.is_available():
        raise ConfigError("shapes are tuned on a GPU, and torch sees none")
    use_exact_float32()
    codec = load_codec(arguments.codec, "cuda", allow_untrained=arguments.allow_untrained)
    part: slice = arguments.part
    shapes: Shapes = {}
    rows: list[dict[str, Any]] = []
    for name in arguments.products.split(","):
        if name not in get_args(Product):
            raise ConfigError(f"--products {name!r}: of {', '.join(get_args(Product))}")
        found, tried = tune(
            codec, name, part, most=arguments.candidates, build_only=arguments.build_only
        )
        shapes |= found
        rows += tried
        # After each: what was found stays when the rest is cut short.
        if not arguments.build_only:
            write_shapes(arguments.out, shapes)
            write_json(arguments.out.with_suffix(".tried.json"), {"rows": rows})
    for row in rows:
        reporter.log(", ".join(f"{name} {value}" for name, value in row.items()))


def tune(
    codec: Codec,
    product: Product,
    part: slice = slice(None),
    *,
    most: int = 99,
    build_only: bool = False,
) -> tuple[Shapes, list[dict[str, Any]]]:
    """The fastest shape of each layer, and a row of every candidate."""
    from server.codec_encoder_fused import FusedEncoder

    dtype = torch.float16 if product == "half" else torch.float32
    fused = FusedEncoder(codec, product, dtype)
    clip_frames = 8 if build_only else CLIP_FRAMES
    best: Shapes = {}
    rows: list[dict[str, Any]] = []
    for layer in fused.layers()[part]:
        key = layer_key(layer.kind, layer.channels, product)
        restore, run = _runner(fused, layer, clip_frames)
        exact: torch.Tensor | None = None
        fastest_us = float("inf")
        for shape in candidates(layer.kind, layer.channels)[:most]:
            fused.shapes[key] = shape
            row: dict[str, Any] = {"layer": key, **asdict(shape)}
            try:
                restore()
                made = run().float()
                torch.cuda.synchronize()
            except Exception as error:  # Triton's have many types: no memory, no such layout, ...
                rows.append({**row, "error": str(error).splitlines()[0][:200]})
                continue
            if exact is None:
                exact = made.clone()
            difference = float((made - exact).norm() / exact.norm())
            if not difference < _MOST_ERROR.get(product, _MOST_ERROR_EXACT):
                rows.append({**row, "error": f"differs by {difference:.1e}"})
                continue
            if build_only:
                continue
            us = _median_us(run) / (CLIPS * clip_frames * frames.SAMPLES_PER_FRAME)
            row["us_per_audio_s"] = us * frames.SAMPLE_RATE_HZ
            rows.append(row)
            if us < fastest_us:
                best[key], fastest_us = shape, us
        fused.shapes.pop(key)
    return best, rows


def _runner(
    fused: FusedEncoder, layer: Layer, clip_frames: int
) -> tuple[Callable[[], object], Callable[[], torch.Tensor]]:
    """What restores a layer's inputs, of which it writes over one, and what runs it."""
    shape = (CLIPS, clip_frames * layer.rate, layer.input)
    generator = torch.Generator("cuda").manual_seed(0)
    y = torch.randn(shape, generator=generator, device="cuda").to(fused.dtype)
    held, x, y_out = torch.randn_like(y), torch.empty_like(y), torch.empty_like(y)
    ends = torch.full((CLIPS,), clip_frames, device="cuda")
    return lambda: x.copy_(held), lambda: fused.run(layer, x, y, y_out, ends)


def _median_us(run: Callable[[], torch.Tensor]) -> float:
    """Microseconds of a call, by the device's clock."""
    taken: list[float] = []
    for number in range(_WARM_UP + _TIMED):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if number >= _WARM_UP:
            taken.append(begin.elapsed_time(end) * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
