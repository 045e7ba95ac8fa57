"""What two codecs cost and how they sound, measured in one process, in turn.

Arm A is the reference, a whole codec in float32; arm B is a form of it. Both decode with the
server's own decoder the codes that arm A's encoder gave for real clips.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from server import frames
from server.codec import load_codec, use_threads
from server.codec_decoder import CodecDecoder, DecoderOptions, Dtype
from server.codec_rows import DecodeRow
from server.weights import CODEC_WEIGHTS
from speech_assets.codec_forms.comparison import compare_clip
from speech_assets.codec_forms.figures import ArmCosts
from speech_assets.corpus.audio import decode_clip
from speech_assets.corpus.sources import read_rows, source_files
from speech_assets.errors import ConfigError, CorpusError, SpeechAssetsError
from speech_assets.profiles import load_profile
from speech_assets.spread import spread
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from server.codec import Codec
    from speech_assets.codec_forms.comparison import ClipComparison

HOP_FRAMES = 4  # The server's longest hop: what streams in their steady state are decoded by.
BATCH_ROWS = (1, 8)
WARM_UP_CALLS = 5
LOADS = 5
THREADS = 1  # As the server's: more wait for each other.
_CORPUS = {"SPEECH_PROFILE": "embedded"}
_SPLIT = "dev"
_LEAST_FRAMES = 3 * HOP_FRAMES  # A timed row has codes on either side.
_MIB = 1 << 20


class MeasurementError(SpeechAssetsError):
    """What was to be measured cannot be."""


@dataclass(frozen=True, slots=True)
class CodedClip:
    """A clip of the corpus as codes, uint16 of shape (frames, 7)."""

    id: str
    codes: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Arm:
    """One codec: where it lies, how it is loaded and decodes."""

    folder: Path
    device: str
    dtype: Dtype
    allow_untrained: bool

    def load(self) -> Codec:
        """The codec, on its device."""
        return load_codec(self.folder, self.device, allow_untrained=self.allow_untrained)

    def decoder(self, codec: Codec, *, noise: bool, dtype: Dtype | None = None) -> CodecDecoder:
        """A decoder of `codec` that can be timed; without `noise` also compared."""
        options = DecoderOptions(
            dtype or self.dtype, noise=noise, hops=(HOP_FRAMES,), batch_sizes=BATCH_ROWS
        )
        return CodecDecoder(codec, options)


def coded_clips(codec: Codec, count: int, done: Callable[[], None]) -> list[CodedClip]:
    """Codes of `count` clips of the embedded corpus, spread over its held-out split by id.

    Clips of less than 12 frames (1 s) are not among them. `done` is called after each.

    Raises:
        CorpusError: the split has fewer clips.
    """
    corpus = load_profile(_CORPUS).corpus
    long_enough = {
        row["id"]: samples
        for row in read_rows(corpus, _SPLIT, source_files(corpus)[_SPLIT])
        for samples in [decode_clip(row["audio"]["bytes"], path=row["path"]).samples]
        if frames.frame_count(len(samples)) >= _LEAST_FRAMES
    }
    ids = sorted(long_enough)
    try:
        places = spread(count, len(ids))
    except ConfigError as error:
        raise CorpusError(
            f"clips of 1 s or more, split {_SPLIT} of corpus {corpus.name}: {error}"
        ) from error
    clips: list[CodedClip] = []
    for name in (ids[place] for place in places):
        clips.append(CodedClip(name, codec.encode(long_enough[name])))
        done()
    return clips


def compare_arms(
    reference: CodecDecoder,
    form: CodecDecoder,
    clips: Sequence[CodedClip],
    done: Callable[[], None],
) -> list[ClipComparison]:
    """How `form` decodes each clip beside `reference`, noise off, the whole clip in one piece.

    Raises:
        MeasurementError: the reference decodes a clip to silence.
    """
    found: list[ClipComparison] = []
    for clip in clips:
        audio = reference.decode_utterance(clip.codes, seed=0)
        comparison = compare_clip(clip.id, form.decode_utterance(clip.codes, seed=0), audio)
        if comparison.reference_energy == 0:
            raise MeasurementError(
                f"clip {clip.id}: the reference codec decodes it to silence, to which no error is "
                "relative; use a trained codec"
            )
        found.append(comparison)
        done()
    return found


def decode_times(
    decoders: Sequence[CodecDecoder],
    clips: Sequence[CodedClip],
    rows: int,
    calls: int,
    done: Callable[[], None],
) -> list[tuple[float, ...]]:
    """Milliseconds for a second of audio, of each of `calls` calls of `rows` rows; by decoder.

    Decoders take turns, each round in the other order, after a warm-up of five rounds. Each row is
    4 frames from the middle of a clip.
    """
    batch = [_middle_row(clips[index % len(clips)], seed=index) for index in range(rows)]
    audio_s = rows * HOP_FRAMES * frames.SAMPLES_PER_FRAME / frames.SAMPLE_RATE_HZ
    taken: list[list[float]] = [[] for _ in decoders]
    for number in range(WARM_UP_CALLS + calls):
        order = range(len(decoders))
        for index in order if number % 2 else reversed(order):
            began_s = time.perf_counter()
            decoders[index].decode(batch, HOP_FRAMES)
            elapsed_s = time.perf_counter() - began_s
            if number >= WARM_UP_CALLS:
                taken[index].append(elapsed_s * 1e3 / audio_s)
        done()
    return [tuple(values) for values in taken]


def load_times(arms: Sequence[Arm]) -> list[tuple[float, ...]]:
    """Milliseconds of each of five loadings of each arm, in turn, files in the page cache."""
    taken: list[list[float]] = [[] for _ in arms]
    for number in range(1 + LOADS):
        for values, arm in zip(taken, arms, strict=True):
            began_s = time.perf_counter()
            arm.load()
            if number:
                values.append((time.perf_counter() - began_s) * 1e3)
    return [tuple(values) for values in taken]


def arm_costs(
    arm: Arm,
    codec: Codec,
    load_ms: tuple[float, ...],
    decode_ms_per_audio_s: dict[int, tuple[float, ...]],
) -> ArmCosts:
    """Times of an arm with its bytes and its memory, which a process of its own tells."""
    weights = [arm.folder / name for name in CODEC_WEIGHTS if (arm.folder / name).is_file()]
    resident_mib, peak_mib = memory_of(arm)
    return ArmCosts(
        file_bytes=weights[0].stat().st_size if weights else 0,
        weights_bytes=sum(tensor.nbytes for tensor in codec.model.state_dict().values()),
        resident_mib=resident_mib,
        peak_mib=peak_mib,
        load_ms=load_ms,
        decode_ms_per_audio_s=decode_ms_per_audio_s,
    )


def memory_of(arm: Arm) -> tuple[float, float]:
    """MiB that a fresh process takes for loading `arm` and decoding with it: at the end, at most.

    Of a GPU's memory where the arm is on one, else of resident memory, of which most is torch's own
    at its first call and the same for any arm. The loaded codec is let go of before the end, as the
    server does: its decoder keeps what it needs.

    Raises:
        MeasurementError: that process was killed.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, worker.die_with_parent) as pool:
        try:
            return pool.submit(_memory_here, arm).result()
        except BrokenProcessPool as error:
            raise MeasurementError(
                f"{arm.folder}: the process that measures its memory was killed; free some memory "
                "and run again"
            ) from error


def _memory_here(arm: Arm) -> tuple[float, float]:
    use_threads(THREADS)
    on_gpu = arm.device != "cpu"
    if not on_gpu:
        with contextlib.suppress(OSError):  # Where it is not allowed, imports may hide the peak.
            Path("/proc/self/clear_refs").write_text("5")
    before_mib = 0.0 if on_gpu else _status_mib("VmRSS")
    # Eager, also on a GPU: graphs hold memory by hop and batch size, which is not the codec's.
    decoder = CodecDecoder(
        arm.load(),
        DecoderOptions(arm.dtype, hops=(HOP_FRAMES,), batch_sizes=BATCH_ROWS, graphs=False),
    )
    decoder.warm_up()
    if on_gpu:
        device = torch.device(arm.device)
        return (
            torch.cuda.memory_allocated(device) / _MIB,
            torch.cuda.max_memory_allocated(device) / _MIB,
        )
    return _status_mib("VmRSS") - before_mib, _status_mib("VmHWM") - before_mib


def _status_mib(name: str) -> float:
    """A size of this process from /proc (which gives kB), in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


def _middle_row(clip: CodedClip, seed: int) -> DecodeRow:
    start = (len(clip.codes) - HOP_FRAMES) // 2 * frames.LATENTS_PER_FRAME
    codes = clip.codes.reshape(-1)
    latents = HOP_FRAMES * frames.LATENTS_PER_FRAME
    return DecodeRow(codes, start, latents, frames.latents_ready(len(codes)), seed)
