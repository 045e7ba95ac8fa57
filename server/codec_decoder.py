"""Streaming decode: hops of many utterances in one call, each the audio of its one-shot decode.

A row is a hop of one utterance: up to four latents (512 samples each) a frame, from any latent on.
It is decoded from the codes around it, in every layer just where it must be, so that chunking and
batching leave no trace beyond float rounding, and no state is kept. Only a row cut before the codes
to its right exist differs, from its one-shot decode by this share of it (embedded codec, speech,
median and worst row): with 4 latents of right context 8e-3 and 4e-2, with 7 3e-4 and 4e-3, with 8
3e-5 and 8e-4 (6e-5 of the whole utterance), with 10 none. Random weights, whose low-rate layers
reach less far, make these figures ten times smaller: do not choose by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
import torch

from server import frames
from server.codec import use_exact_float32
from server.codec_geometry import Geometry, Span
from server.codec_graphs import GraphCatalogue, codec_stream
from server.codec_network import DecoderNetwork, masked_spans
from server.codec_rows import DecodeRow, stage_rows, staged_numbers, staged_width, unstage_rows
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from server.codec import Codec
    from server.errors import ServerError

Dtype = Literal["float32", "float16", "bfloat16", "float64"]
Kernels = Literal["auto", "torch", "triton"]
_HALF = ("float16", "bfloat16")
DTYPES: dict[Dtype, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,  # for tests
}
_PCM_SCALE = 32_767
_UNMASKED: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """How to decode. All combinations run.

    Attributes:
        dtype: of weights and activations. Half precision is for CUDA; a CPU only gets slower.
        form: "cropped" computes in each layer what the hop needs; "window" decodes whole windows of
            hop + 3 frames and keeps the hop, as upstream does: inexact by design, for comparison.
        kernels: "torch" runs each layer by PyTorch, "triton" fused kernels (CUDA, half precision,
            cropped); "auto" is the latter where it can be.
        noise: add the noise that the codec was trained with.
        graphs: on CUDA, capture a graph for each hop and batch size and run nothing else.
        hops: frames a row may have.
        batch_sizes: sizes that graphs are captured for, ascending; a larger batch is split.
    """

    dtype: Dtype = "float32"
    form: Literal["cropped", "window"] = "cropped"
    kernels: Kernels = "auto"
    noise: bool = True
    graphs: bool = True
    hops: tuple[int, ...] = (1, 2, 4)
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)


class CodecDecoder:
    """Decodes rows of many utterances with one codec, on its device.

    Raises:
        ConfigurationError: the codec or the options cannot work.
    """

    def __init__(self, codec: Codec, options: DecoderOptions | None = None) -> None:
        self.options = options or DecoderOptions()
        self.device = codec.device
        _check(self.options, self.device)
        if self.device.type == "cuda" and self.options.dtype == "float32":
            use_exact_float32()
        kind = _network_class(self.options, self.device)
        self._network = kind(codec, DTYPES[self.options.dtype], noise=self.options.noise)
        self.geometries: dict[int, Geometry] = {
            hop: self._network.geometry(frames.LATENTS_PER_FRAME * hop, self._window(hop))
            for hop in self.options.hops
        }
        self._graphs: GraphCatalogue | None = None
        self._stream: torch.cuda.Stream | None = None  # of eager decodes
        if self.device.type == "cuda" and not self.options.graphs:
            self._stream = codec_stream(self.device)

    @property
    def context_latents(self) -> tuple[int, int]:
        """Latents to the left and to the right of a row that its audio depends on."""
        geometry = self.geometries[self.options.hops[0]]
        return -geometry.codes.low, geometry.codes.high - geometry.latents

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Make ready all that `submit` can meet: capture the graphs, or run each hop once."""
        if self._captures:
            with torch.cuda.device(self.device):
                self._graphs = GraphCatalogue(
                    {hop: staged_width(geometry) for hop, geometry in self.geometries.items()},
                    self.options.batch_sizes,
                    lambda hop, staged: self._pcm(hop, staged, _UNMASKED),
                    self.device,
                )
        frame = np.zeros(frames.TOKENS_PER_FRAME, np.uint16)
        row = DecodeRow(frame, 0, frames.LATENTS_PER_FRAME, frames.LATENTS_PER_FRAME, 0)
        for hop in self.options.hops:
            self.decode([row], hop)

    def submit(self, rows: Sequence[DecodeRow], hop: int) -> DecodeTicket:
        """Start decoding rows of one hop (in frames). On a CPU they are done on return.

        Raises:
            ValueError: a row does not fit the hop or its codes are wrong (see `stage_rows`).
            ConfigurationError: `hop` is not in the options, or graphs are on and not captured yet.
        """
        return DecodeTicket(self.launch(self.stage(rows, hop), hop), rows)

    def stage(self, rows: Sequence[DecodeRow], hop: int) -> NDArray[np.int64]:
        """The first half of `submit`: rows as `launch` takes them. See there and `stage_rows`."""
        return stage_rows(geometry_of(self.geometries, hop), rows)

    @torch.inference_mode()
    def launch(self, staged: NDArray[np.int64], hop: int) -> Sequence[PendingPcm]:
        """The other half of `submit`: parts whose rows, joined, are those of `staged`, whole hops.

        Raises:
            ConfigurationError: graphs are on and not captured yet.
        """
        if not len(staged):
            return ()
        if not self._captures:
            unmasked = self._unmasked(hop, staged) if self.device.type == "cpu" else _UNMASKED
            # On the thread's stream it would wait for what vLLM has put there.
            with torch.cuda.stream(self._stream):  # None, on a CPU, changes nothing.
                pcm = self._pcm(hop, torch.from_numpy(staged).to(self.device), unmasked)
                samples = pcm.cpu().numpy()
            return (_DonePcm(samples),)
        if self._graphs is None:
            raise ConfigurationError("the decoder's graphs are not captured; call warm_up first")
        largest = self.options.batch_sizes[-1]
        starts = range(0, len(staged), largest)
        return [self._graphs.launch(hop, staged[first : first + largest]) for first in starts]

    def watch(self, hear: Callable[[ServerError | None], None]) -> None:
        """Nothing: a ticket's `ready` asks the device. See `codec_calls.Decoder`."""

    def close(self) -> None:
        """Release the graphs and their memory; what is submitted is to be fetched before."""
        self._graphs = None

    def decode(self, rows: Sequence[DecodeRow], hop: int) -> list[NDArray[np.int16]]:
        """PCM of each row, int16 of shape (512 * row.latents,); waits for it. See `submit`."""
        return self.submit(rows, hop).pcm()

    @torch.inference_mode()
    def waveforms(self, rows: Sequence[DecodeRow], hop: int) -> list[NDArray[np.floating]]:
        """What `decode` rounds to int16: float32 (float64) in -1..1, eager, for comparisons."""
        geometry = geometry_of(self.geometries, hop)
        staged = torch.from_numpy(stage_rows(geometry, rows)).to(self.device)
        audio = self._network.run(geometry, unstage_rows(staged)).cpu().numpy()
        return _emitted(audio, rows)

    @torch.inference_mode()
    def decode_utterance(self, codes: NDArray[np.integer], seed: int) -> NDArray[np.floating]:
        """The one-shot decode of an utterance: what its rows join to.

        `codes` are of shape (frames, 7); the audio is float32 (float64) of shape (2,048 * frames,)
        in -1..1, with the noise of `seed`. It is decoded in one piece, whatever its length.

        Raises:
            ValueError: a code is outside 0..4,095.
        """
        latents = len(codes) * frames.LATENTS_PER_FRAME
        if not latents:
            return np.zeros(0, np.float32)
        geometry = self._network.geometry(latents)
        row = DecodeRow(np.asarray(codes).reshape(-1), 0, latents, latents, seed)
        staged = torch.from_numpy(stage_rows(geometry, [row])).to(self.device)
        return self._network.run(geometry, unstage_rows(staged))[0].cpu().numpy()

    @property
    def _captures(self) -> bool:
        return self.device.type == "cuda" and self.options.graphs

    def _window(self, hop: int) -> Span | None:
        if self.options.form == "cropped":
            return None
        window = Span(-frames.WINDOW_LEFT_FRAMES, hop + frames.WINDOW_RIGHT_FRAMES)
        return window.scaled(frames.LATENTS_PER_FRAME)

    def _pcm(self, hop: int, staged: Tensor, unmasked: frozenset[int]) -> Tensor:
        """PCM, int16 of shape (rows, 2,048 * hop), of staged rows on the device."""
        audio = self._network.run(self.geometries[hop], unstage_rows(staged), unmasked)
        return (audio * _PCM_SCALE).round_().to(torch.int16)  # tanh has clamped it

    def _unmasked(self, hop: int, staged: NDArray[np.int64]) -> frozenset[int]:
        """Rates at which none of the rows comes near its utterance's ends."""
        starts, ends, _ = staged_numbers(staged)
        before, after = int(starts.min()), int((ends - starts).min())
        spans = masked_spans(self.geometries[hop], self._network.layers)
        return frozenset(
            rate
            for rate, span in spans.items()
            if before * rate + span.low >= 0 and span.high <= after * rate
        )


def geometry_of(geometries: Mapping[int, Geometry], hop: int) -> Geometry:
    """The geometry of a hop.

    Raises:
        ConfigurationError: the hop is not in the options.
    """
    geometry = geometries.get(hop)
    if geometry is None:
        raise ConfigurationError(f"hop {hop} is not among {tuple(geometries)}; add it to them")
    return geometry


class PendingPcm(Protocol):
    """int16 samples (rows, samples) that a device may still be computing."""

    def ready(self) -> bool:
        """Whether `result` returns at once."""
        ...

    def result(self) -> NDArray[np.int16]:
        """The samples; waits for them."""
        ...


class DecodeTicket:
    """Audio of submitted rows: `ready` tells without waiting, `pcm` waits."""

    def __init__(self, parts: Sequence[PendingPcm], rows: Sequence[DecodeRow]) -> None:
        self._parts, self._rows = parts, rows

    def ready(self) -> bool:
        """Whether `pcm` returns at once."""
        return all(part.ready() for part in self._parts)

    def pcm(self) -> list[NDArray[np.int16]]:
        """Samples of each row, int16 of shape (512 * row.latents,), at 24 kHz."""
        return _emitted([samples for part in self._parts for samples in part.result()], self._rows)


class _DonePcm:
    def __init__(self, samples: NDArray[np.int16]) -> None:
        self._samples = samples

    def ready(self) -> bool:
        return True

    def result(self) -> NDArray[np.int16]:
        return self._samples


def _emitted(
    blocks: Sequence[NDArray[Any]] | NDArray[Any], rows: Sequence[DecodeRow]
) -> list[NDArray[Any]]:
    """Each row's own samples: a row shorter than its hop was decoded with the hop's length."""
    pairs = zip(blocks, rows, strict=True)
    return [block[: row.latents * frames.SAMPLES_PER_LATENT] for block, row in pairs]


def _network_class(options: DecoderOptions, device: torch.device) -> type[DecoderNetwork]:
    fits = device.type == "cuda" and options.dtype in _HALF and options.form == "cropped"
    if options.kernels == "torch" or not fits:
        return DecoderNetwork
    try:
        from server.codec_fused import FusedNetwork  # Here: Triton comes with CUDA's torch alone.
    except ImportError as error:
        if options.kernels == "auto":
            return DecoderNetwork
        raise ConfigurationError(
            f"codec kernels triton: {error}; install the GPU environment (make setup "
            "SPEECH_STACK=gpu), or set codec_kernels = 'torch'"
        ) from error
    return FusedNetwork


def _check(options: DecoderOptions, device: torch.device) -> None:
    for name, values in (("hops", options.hops), ("batch_sizes", options.batch_sizes)):
        if not values or list(values) != sorted(set(values)) or values[0] < 1:
            raise ConfigurationError(f"{name} {values}: give ascending numbers from 1, each once")
    if options.dtype not in DTYPES:
        raise ConfigurationError(f"codec dtype {options.dtype}: use one of {', '.join(DTYPES)}")
    if options.form not in ("cropped", "window"):
        raise ConfigurationError(f"decoder form {options.form}: use cropped or window")
    if options.kernels not in get_args(Kernels):
        raise ConfigurationError(
            f"codec kernels {options.kernels}: use one of {', '.join(get_args(Kernels))}"
        )
    if options.kernels == "triton" and (
        device.type != "cuda" or options.dtype not in _HALF or options.form != "cropped"
    ):
        raise ConfigurationError(
            f"codec kernels triton: they decode in float16 or bfloat16, cropped, on CUDA, and not "
            f"in {options.dtype}, {options.form}, on {device.type}; set codec_kernels = 'auto'"
        )
