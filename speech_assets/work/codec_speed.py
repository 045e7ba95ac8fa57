"""How fast the codec decodes rows of many streams, and how far each way is from float32.

Each way is a dtype with the kernels that run it; ways are timed in turn, round after round. Where
the codec has no trained weights (`--allow-untrained`) it has the shape, and its speed is the same.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch

from server import frames
from server.codec import load_codec, use_threads
from server.codec_decoder import CodecDecoder, DecoderOptions, Dtype, Kernels
from server.codec_rows import DecodeRow
from server.errors import ServerError
from server.files import write_json
from speech_assets.bench.percentile import nearest_rank
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.results.provenance import device_of, measurement_began, place_of
from speech_assets.results.result import Figure, Result
from speech_assets.work import worker
from speech_assets.work.device_lock import hold_engine_device

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from server.codec import Codec

KIND = "codec_speed"
WAYS = "float32/torch,float16/torch,float16/triton"
SHAPES = "4x64,4x8,1x64,1x1"
ROUNDS, CALLS = 7, 12
_WARM_UP_ROUNDS = 2
_UTTERANCE_FRAMES = 60


class CodecSpeedError(SpeechAssetsError):
    """A way of decoding cannot be measured here."""


@dataclass(frozen=True, slots=True)
class Way:
    """A dtype with the kernels that run it."""

    dtype: Dtype
    kernels: Kernels

    @property
    def name(self) -> str:
        """As it is asked for: `float16/triton`."""
        return f"{self.dtype}/{self.kernels}"


def main() -> None:
    """Entry point of `python -m speech_assets.work.codec_speed`."""
    parser = worker.argument_parser("codec_speed", __doc__ or "")
    add = parser.add_argument
    add("--codec", default="server/embedded/codec", metavar="DIR", help="folder of the codec")
    add("--allow-untrained", action="store_true", help="time a shape with random weights")
    add("--device", choices=("cpu", "cuda"), default="cuda")
    add("--ways", default=WAYS, metavar="DTYPE/KERNELS,...")
    add("--shapes", default=SHAPES, metavar="FRAMESxROWS,...", help="of a row, and rows of a call")
    add("--rounds", type=worker.at_least(1), default=ROUNDS)
    add("--out", type=Path, required=True, help="folder for the result")
    parser.set_defaults(when_interrupted=worker.BEGINS_ANEW)
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    ways, shapes = parse_ways(arguments.ways), parse_shapes(arguments.shapes)
    try:
        with hold_engine_device(arguments.device, reporter.notice):
            result = measure(arguments, ways, shapes)
    except ServerError as error:
        raise CodecSpeedError(str(error)) from error
    path = arguments.out / f"{result.name}.json"
    write_json(path, result.as_json())
    for row in result.rows:
        reporter.notice(
            f"{row['way']}, {row['frames']} frames x {row['rows']}: {row['us_per_frame_p50']:.2f} "
            f"us a frame, {row['error_db']:.1f} dB"
        )
    reporter.result(KIND, key=str(path))


def measure(
    arguments: argparse.Namespace, ways: Sequence[Way], shapes: Sequence[tuple[int, int]]
) -> Result:
    """Time every way at every shape, and compare it with float32 by PyTorch."""
    started_at = measurement_began()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        use_threads(1)
    codec = load_codec(Path(arguments.codec), device, allow_untrained=arguments.allow_untrained)
    hops = tuple(sorted({hop for hop, _ in shapes}))
    sizes = tuple(sorted({rows for _, rows in shapes}))
    reference = _decoder(codec, Way("float32", "torch"), hops, sizes)
    decoders = [_decoder(codec, way, hops, sizes) for way in ways]
    rows: list[dict[str, Any]] = []
    for hop, count in shapes:
        batch = rows_of(hop, count)
        exact = np.stack(reference.waveforms(batch, hop))
        taken = _times(decoders, batch, hop, arguments.rounds)
        for way, decoder, times_us in zip(ways, decoders, taken, strict=True):
            made = np.stack(decoder.waveforms(batch, hop))
            rows.append(
                {
                    "way": way.name,
                    "frames": hop,
                    "rows": count,
                    "calls": len(times_us) * CALLS,
                    "us_per_frame_p50": nearest_rank(times_us, 50) / hop / count,
                    "us_per_frame_least": min(times_us) / hop / count,
                    "us_per_frame_most": max(times_us) / hop / count,
                    "error_db": error_db(made, exact),
                }
            )
    return Result(
        kind=KIND,
        name=codec.identity.name,
        reduced=arguments.rounds < ROUNDS,
        started_at=started_at,
        device=device_of(arguments.device),
        command=f"python -m speech_assets.work.codec_speed --codec {place_of(arguments.codec)} "
        + "--allow-untrained " * arguments.allow_untrained
        + f"--device {arguments.device} --ways {arguments.ways} --shapes {arguments.shapes}",
        config={
            "trained": codec.identity.trained,
            "graphs": device.type == "cuda",
            "calls_in_a_row": CALLS,
        },
        seeds=[0],
        rows=rows,
        figures={
            f"us_per_frame_{row['way'].replace('/', '_')}_{row['frames']}x{row['rows']}": Figure(
                row["us_per_frame_p50"],
                "us",
                row["calls"],
                row["us_per_frame_least"],
                row["us_per_frame_most"],
            )
            for row in rows
        },
    )


def parse_ways(text: str) -> list[Way]:
    """Ways as `--ways` has them.

    Raises:
        ConfigError: one is unknown.
    """
    ways: list[Way] = []
    for word in text.split(","):
        dtype, _, kernels = word.strip().partition("/")
        if dtype not in get_args(Dtype) or kernels not in get_args(Kernels):
            raise ConfigError(
                f"--ways {word.strip()!r}: give DTYPE/KERNELS, of {', '.join(get_args(Dtype))} and "
                f"{', '.join(get_args(Kernels))}"
            )
        ways.append(Way(dtype, kernels))  # pyright: ignore[reportArgumentType]
    return ways


def parse_shapes(text: str) -> list[tuple[int, int]]:
    """Frames of a row and rows of a call, as `--shapes` has them.

    Raises:
        ConfigError: one is no such pair.
    """
    shapes: list[tuple[int, int]] = []
    for word in text.split(","):
        hop, _, rows = word.strip().partition("x")
        if not (hop.isdecimal() and rows.isdecimal() and int(hop) and int(rows)):
            raise ConfigError(f"--shapes {word.strip()!r}: give FRAMESxROWS, as 4x64")
        if int(hop) > _UTTERANCE_FRAMES // 2:
            raise ConfigError(f"--shapes {word.strip()!r}: at most {_UTTERANCE_FRAMES // 2} frames")
        shapes.append((int(hop), int(rows)))
    return shapes


def rows_of(hop: int, count: int) -> list[DecodeRow]:
    """Rows from the middle of utterances of random codes, each at another place."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, frames.CODEBOOK_SIZE, (_UTTERANCE_FRAMES, frames.TOKENS_PER_FRAME))
    flat = codes.astype(np.uint16).reshape(-1)
    latents, whole = hop * frames.LATENTS_PER_FRAME, _UTTERANCE_FRAMES * frames.LATENTS_PER_FRAME
    return [
        DecodeRow(flat, 12 + index * 5 % (whole - latents - 24), latents, whole, seed=index)
        for index in range(count)
    ]


def error_db(made: NDArray[np.floating], exact: NDArray[np.floating]) -> float:
    """Power of the difference over that of `exact`, dB; -200 where they are the same."""
    error = np.square(made.astype(np.float64) - exact).sum()
    return float(10 * np.log10(max(error / np.square(exact.astype(np.float64)).sum(), 1e-20)))


def _decoder(codec: Codec, way: Way, hops: tuple[int, ...], sizes: tuple[int, ...]) -> CodecDecoder:
    options = DecoderOptions(way.dtype, kernels=way.kernels, hops=hops, batch_sizes=sizes)
    decoder = CodecDecoder(codec, options)
    decoder.warm_up()
    return decoder


def _times(
    decoders: Sequence[CodecDecoder], batch: Sequence[DecodeRow], hop: int, rounds: int
) -> list[list[float]]:
    """Microseconds a call of each decoder, of calls one after the other, by round."""
    taken: list[list[float]] = [[] for _ in decoders]
    for number in range(_WARM_UP_ROUNDS + rounds):
        order = range(len(decoders)) if number % 2 else reversed(range(len(decoders)))
        for index in order:
            began_s = time.perf_counter()
            tickets = [decoders[index].submit(batch, hop) for _ in range(CALLS)]
            tickets[-1].pcm()
            if number >= _WARM_UP_ROUNDS:
                taken[index].append((time.perf_counter() - began_s) * 1e6 / CALLS)
    return taken


if __name__ == "__main__":
    main()
