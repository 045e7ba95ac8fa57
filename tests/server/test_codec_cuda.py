"""The decoder's captured graphs on a GPU give what it gives on a CPU. Skipped without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from server import frames
from server.codec import load_codec
from server.codec_decoder import CodecDecoder, DecoderOptions
from server.codec_rows import DecodeRow
from server.codec_thread import ThreadDecoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"
SIZES = (1, 2, 4, 8, 16)
UTTERANCES, FRAMES = 20, 24
# Of int16 audio, by dtype of the codec: what its rounding may leave.
LARGEST_ERROR_DB = {"float32": -75.0, "float16": -45.0, "bfloat16": -35.0}


@pytest.fixture(scope="module")
def codes() -> list[NDArray[np.uint16]]:
    """Codes of speech: noise encoded by the codec, so that levels are plausible."""
    codec = load_codec(CODEC)
    rng = np.random.default_rng(3)
    clips = rng.normal(0, 0.05, (UTTERANCES, FRAMES * frames.SAMPLES_PER_FRAME))
    return [codec.encode(clip.astype(np.float32)).reshape(-1) for clip in clips]


@pytest.fixture(scope="module")
def expected(codes) -> list[NDArray[np.int16]]:
    decoder = CodecDecoder(load_codec(CODEC))
    waves = [decoder.decode_utterance(one.reshape(-1, 7), seed) for seed, one in enumerate(codes)]
    return [np.round(wave * 32_767).astype(np.int16) for wave in waves]


@pytest.mark.parametrize(
    ("dtype", "kernels"), [*((dtype, "torch") for dtype in LARGEST_ERROR_DB), ("float16", "triton")]
)
def test_graphs_give_the_audio_of_a_cpu(codes, expected, dtype, kernels):
    assert_close(codes, expected, DecoderOptions(dtype=dtype, kernels=kernels, batch_sizes=SIZES))


@pytest.mark.parametrize(("dtype", "kernels"), [("float32", "torch"), ("float16", "triton")])
def test_what_no_graph_was_captured_for_gives_it_too(codes, expected, dtype, kernels):
    assert_close(codes, expected, DecoderOptions(dtype=dtype, kernels=kernels, graphs=False))


def test_the_codecs_own_thread_gives_it_too(codes, expected):
    codec = load_codec(CODEC, device=torch.device("cuda"))
    options = DecoderOptions(dtype="bfloat16", batch_sizes=SIZES)
    decoder = ThreadDecoder(lambda: CodecDecoder(codec, options))
    try:
        assert_close(codes, expected, options, decoder)
    finally:
        decoder.close()


def assert_close(codes, expected, options, decoder=None):
    decoder = decoder or CodecDecoder(load_codec(CODEC, device=torch.device("cuda")), options)
    decoder.warm_up()
    for hop in options.hops:
        latents = hop * frames.LATENTS_PER_FRAME
        whole = FRAMES * frames.LATENTS_PER_FRAME
        made: list[list[NDArray[np.int16]]] = [[] for _ in codes]
        tickets = []
        for start in range(0, whole, latents):
            rows = [
                DecodeRow(one, start, min(latents, whole - start), whole, seed)
                for seed, one in enumerate(codes)
            ]
            tickets.append(decoder.submit(rows, hop))
        # More than the ring holds are in flight: late readers lose nothing.
        for ticket in tickets:
            for parts, samples in zip(made, ticket.pcm(), strict=True):
                parts.append(samples)
        for parts, wave in zip(made, expected, strict=True):
            error = np.concatenate(parts).astype(np.float64) - wave
            power = np.square(wave, dtype=np.float64).mean()
            error_db = 10 * np.log10(max(np.square(error).mean(), 1e-9) / power)
            assert error_db < LARGEST_ERROR_DB[options.dtype], (hop, error_db)
