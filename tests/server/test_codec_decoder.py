"""Any chunking, interleaving and batching of an utterance gives the audio of SNAC's own decoder."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from snac.layers import NoiseBlock

from server import frames
from server.codec import load_codec
from server.codec_decoder import CodecDecoder, DecoderOptions
from server.codec_geometry import Reach, Span, plan_geometry
from server.codec_network import DecoderNetwork
from server.codec_noise import fold_seed, position_noise, quantile_table
from server.codec_rows import DecodeRow
from server.errors import ConfigurationError
from speech_assets.corpus.audio import decode_clip

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.codec import Codec

EMBEDDED = Path(__file__).parents[2] / "server" / "embedded" / "codec"
HOPS = (1, 2, 4)
TINY = {
    "sampling_rate": 24_000,
    "encoder_dim": 4,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 48,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": 4_096,
    "codebook_dim": 8,
    "vq_strides": [4, 2, 1],
    "noise": True,
    "depthwise": True,
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def make_codec(folder: Path, **changes: object) -> Codec:
    """A SNAC of random weights whose layers all matter, in float64."""
    (folder / "config.json").write_text(json.dumps(TINY | changes))
    codec = load_codec(folder, allow_untrained=True)
    torch.manual_seed(5)
    model = codec.model.double()
    for name, parameter in model.decoder.named_parameters():
        # Fresh biases and alphas are 0 and 1: mistakes in masks and Snake would not show.
        if name.endswith("bias"):
            parameter.copy_(torch.randn_like(parameter) * 0.1)
        elif name.endswith("alpha"):
            parameter.copy_(torch.rand_like(parameter) * 2 + 0.2)
    return codec


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return make_codec(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def embedded() -> Codec:
    return load_codec(EMBEDDED)


def random_codes(frame_count: int, seed: int = 0) -> NDArray[np.uint16]:
    return np.random.default_rng(seed).integers(0, 4_096, (frame_count, 7)).astype(np.uint16)


@torch.inference_mode()
def snac_decode(codec: Codec, codes: NDArray, seed: int | None) -> NDArray:
    """SNAC's own decoder on a whole utterance, with the noise of `seed` injected, or none."""
    blocks = [module for module in codec.model.decoder.modules() if isinstance(module, NoiseBlock)]
    dtype = codec.model.decoder.model[0].weight.dtype
    table = quantile_table(torch.device("cpu"), dtype)

    def inject(layer: int):
        def hook(module: NoiseBlock, arguments: tuple, _output: object) -> torch.Tensor:
            (x,) = arguments
            if seed is None:
                return x
            positions = torch.arange(x.shape[-1])[None]
            noise = position_noise(table, torch.tensor([[fold_seed(seed)]]), layer, positions)
            return x + noise[:, None] * module.linear(x)

        return hook

    handles = [block.register_forward_hook(inject(i)) for i, block in enumerate(blocks)]
    try:
        levels = [torch.from_numpy(level)[None] for level in frames.levels_from_slots(codes)]
        return codec.model.decode(levels)[0, 0].numpy()
    finally:
        for handle in handles:
            handle.remove()


def relative_error(audio: NDArray, reference: NDArray) -> float:
    return float(np.linalg.norm(audio - reference) / np.linalg.norm(reference))


def rows_of(
    codes: NDArray, seed: int, cuts: list[int], right: int | None = None
) -> list[tuple[int, DecodeRow]]:
    """Rows that emit an utterance, cut at `cuts` (latents), each with the smallest hop it fits.

    A row knows the codes up to `right` latents beyond it, or all of them.
    """
    flat, total = codes.reshape(-1), 4 * len(codes)
    edges = sorted({0, total, *(cut for cut in cuts if cut < total)})
    planned = []
    for low, high in pairwise(edges):
        for start in range(low, high, 16):
            latents = min(16, high - start)
            end = total if right is None else min(total, start + latents + right)
            hop = next(hop for hop in HOPS if 4 * hop >= latents)
            planned.append((hop, DecodeRow(flat, start, latents, end, seed)))
    return planned


def decode_by_hop(
    decoder: CodecDecoder, planned: list[tuple[int, DecodeRow]], batch: int
) -> list[NDArray]:
    """Audio of each row; rows of one hop share calls, however their utterances interleave."""
    audio: dict[int, NDArray] = {}
    for hop in HOPS:
        indices = [index for index, (row_hop, _) in enumerate(planned) if row_hop == hop]
        for first in range(0, len(indices), batch):
            group = indices[first : first + batch]
            blocks = decoder.waveforms([planned[index][1] for index in group], hop)
            audio.update(zip(group, blocks, strict=True))
    return [audio[index] for index in range(len(planned))]


def test_one_shot_is_snacs_own_decode(tiny: Codec) -> None:
    codes = random_codes(7)
    plain = CodecDecoder(tiny, DecoderOptions(dtype="float64", noise=False))
    noisy = CodecDecoder(tiny, DecoderOptions(dtype="float64"))
    reference = snac_decode(tiny, codes, seed=None)
    assert plain.decode_utterance(codes, seed=3).shape == (7 * frames.SAMPLES_PER_FRAME,)
    assert relative_error(plain.decode_utterance(codes, seed=3), reference) < 1e-12
    assert relative_error(noisy.decode_utterance(codes, 3), snac_decode(tiny, codes, 3)) < 1e-12
    assert relative_error(noisy.decode_utterance(codes, 3), reference) > 1e-3


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_chunking_and_batching_gives_the_one_shot_audio(tiny: Codec, data) -> None:
    """Unequal utterances, cut anywhere, in shuffled batches: only float64 rounding is left."""
    decoder = CodecDecoder(tiny, DecoderOptions(dtype="float64"))
    utterances, planned, owners = [], [], []
    for number in range(data.draw(st.integers(1, 3))):
        codes = random_codes(data.draw(st.integers(1, 12)), seed=number)
        seed = data.draw(st.integers(-(2**63), 2**64))
        cuts = data.draw(st.lists(st.integers(1, 4 * len(codes)), max_size=12))
        rows = rows_of(codes, seed, cuts)
        utterances.append(snac_decode(tiny, codes, seed))
        planned += rows
        owners += [number] * len(rows)
    order = data.draw(st.permutations(range(len(planned))))
    shuffled = decode_by_hop(decoder, [planned[i] for i in order], data.draw(st.integers(1, 8)))
    blocks = dict(zip(order, shuffled, strict=True))
    for number, reference in enumerate(utterances):
        joined = np.concatenate([blocks[i] for i in range(len(planned)) if owners[i] == number])
        assert joined.shape == reference.shape
        assert relative_error(joined, reference) < 1e-12


@pytest.mark.parametrize(
    "changes",
    [
        {"depthwise": False, "decoder_dim": 16},
        {"noise": False},
        {"decoder_rates": [4, 8, 8, 2], "decoder_dim": 32},
        {"decoder_rates": [8, 8, 8], "decoder_dim": 24},
    ],
)
def test_spans_follow_from_the_layers_of_any_snac(tmp_path: Path, changes: dict) -> None:
    codec = make_codec(tmp_path, **changes)
    decoder = CodecDecoder(codec, DecoderOptions(dtype="float64"))
    codes = random_codes(9)
    blocks = decode_by_hop(decoder, rows_of(codes, 1, [1, 4, 6, 14, 22, 30, 31]), batch=4)
    assert relative_error(np.concatenate(blocks), snac_decode(codec, codes, 1)) < 1e-12


def test_an_odd_stride_is_no_exception() -> None:
    """The layout forbids odd strides today; the arithmetic still holds for them."""
    reach = Reach(kernel=6, padding=2, upsampling=3)
    module = torch.nn.ConvTranspose1d(1, 1, 6, 3, padding=2, output_padding=1).double()
    for low in range(3, 12):
        output = Span(low, low + 4)
        given = reach.needs(output)
        with torch.no_grad():
            base = torch.randn(1, 1, 12, dtype=torch.float64)
            kept = torch.zeros_like(base)
            kept[..., given.low : given.high] = base[..., given.low : given.high]
            at = slice(output.low, output.high)
            assert torch.equal(module(kept)[..., at], module(base)[..., at])
            kept[..., given.low] = 0
            assert not torch.equal(module(kept)[..., at], module(base)[..., at])


def test_streaming_meets_the_contract_on_the_embedded_codec(
    embedded: Codec, short_rows: list[dict]
) -> None:
    """float32, trained weights, speech: 1e-4 with 8 latents to the right, 4e-3 of a chunk with 7.

    With random weights 4 latents do for the first chunk; with trained ones they leave 1e-2.
    """
    clip = decode_clip(short_rows[0]["audio"]["bytes"], path=short_rows[0]["path"]).samples
    codes = embedded.encode(clip)[:16]
    reference = snac_decode(embedded, codes, seed=11)
    decoder = CodecDecoder(embedded)
    assert relative_error(decoder.decode_utterance(codes, 11), reference) < 1e-5
    cuts = [4, 12, 28, 44]
    steady = np.concatenate(decode_by_hop(decoder, rows_of(codes, 11, cuts, right=8), batch=2))
    assert steady.shape == reference.shape
    assert relative_error(steady, reference) <= 1e-4
    (first,) = decoder.waveforms([rows_of(codes, 11, cuts, right=7)[0][1]], 1)
    assert 1e-5 < relative_error(first, reference[: len(first)]) <= 4e-3
    exact = np.concatenate(decode_by_hop(decoder, rows_of(codes, 11, cuts, right=10), batch=2))
    assert relative_error(exact, reference) < 1e-5


def test_pcm_is_the_rounded_waveform(embedded: Codec) -> None:
    codes = random_codes(6, seed=2)
    decoder = CodecDecoder(embedded)
    decoder.warm_up()
    rows = [DecodeRow(codes.reshape(-1), start, 4, 24, 5) for start in (0, 4, 20)]
    rows.append(replace(rows[0], start=22, latents=2))
    ticket = decoder.submit(rows, 1)
    assert ticket.ready()
    waves = decoder.waveforms(rows, 1)
    for pcm, wave, row in zip(ticket.pcm(), waves, rows, strict=True):
        assert pcm.dtype == np.int16
        assert pcm.shape == (512 * row.latents,)
        assert np.abs(pcm - wave * 32_767).max() <= 0.51  # masks left out or not: one rounding
    assert decoder.decode([], 1) == []


def test_a_window_decodes_like_upstream(tiny: Codec) -> None:
    """Four frames decoded by themselves, the second kept; an utterance's own ends as they are."""
    codes = random_codes(8, seed=3)
    options = DecoderOptions(dtype="float64", form="window", noise=False)
    decoder = CodecDecoder(tiny, options)
    for first in range(1, 6):
        window = snac_decode(tiny, codes[first - 1 : first + 3], seed=None)
        row = DecodeRow(codes.reshape(-1), 4 * first, 4, 32, 0)
        (audio,) = decoder.waveforms([row], 1)
        assert relative_error(audio, window[2_048:4_096]) < 1e-12
    head, tail = (DecodeRow(codes.reshape(-1), start, 4, 32, 0) for start in (0, 28))
    expected_head = snac_decode(tiny, codes[:3], seed=None)[:2_048]
    expected_tail = snac_decode(tiny, codes[6:], seed=None)[2_048:]
    audio = decoder.waveforms([head, tail], 1)
    assert relative_error(audio[0], expected_head) < 1e-12
    assert relative_error(audio[1], expected_tail) < 1e-12
    (wide,) = decoder.waveforms([DecodeRow(codes.reshape(-1), 4, 8, 32, 0)], 2)
    assert relative_error(wide, snac_decode(tiny, codes[:5], seed=None)[2_048:6_144]) < 1e-12


@pytest.mark.parametrize(("dtype", "limit"), [("bfloat16", 0.1), ("float16", 0.02)])
def test_half_precision_stays_near_and_does_not_depend_on_chunking(
    embedded: Codec, dtype: str, limit: float
) -> None:
    codes = random_codes(6, seed=4)
    half = CodecDecoder(embedded, DecoderOptions(dtype=dtype, noise=False))
    blocks = decode_by_hop(half, rows_of(codes, 0, [4, 8, 10]), batch=1)
    reference = snac_decode(embedded, codes, seed=None)
    assert 0 < relative_error(np.concatenate(blocks), reference) < limit


def test_cropping_leaves_little_more_than_the_hop(embedded: Codec) -> None:
    """Work per emitted frame against the least there is, weighted by each layer's channels."""
    network = DecoderNetwork(embedded, torch.float32, noise=True)
    long = network.geometry(4 * 1_000).positions() / 1_000
    overhead = {hop: network.geometry(4 * hop).positions() / hop / long for hop in HOPS}
    window = network.geometry(4, Span(-4, 12)).positions() / long
    assert 1 < overhead[4] < overhead[2] < overhead[1] < 1.25
    assert window == pytest.approx(4, rel=0.01)
    left, right = CodecDecoder(embedded).context_latents
    assert (left, right) == (10, 10)


def test_spans_outside_a_window_are_not_computed() -> None:
    geometry = plan_geometry([Reach(7, 1, 3), Reach(16, 1, 4, 8)], 4, Span(-4, 12))
    assert geometry.codes == Span(-4, 12)
    assert geometry.layers[-1].output == Span(-32, 96)


def test_noise_is_normal_and_of_seed_layer_and_position_alone() -> None:
    table = quantile_table(torch.device("cpu"), torch.float32)
    positions = torch.arange(200_000)[None]
    seeds = torch.tensor([[fold_seed(1)], [fold_seed(2)], [fold_seed(-1)]])
    noise = position_noise(table, seeds, 0, positions)
    assert noise.shape == (3, 200_000)
    assert noise.mean(1).abs().max() < 0.01
    assert (noise.std(1) - 1).abs().max() < 0.01
    assert (noise.pow(4).mean(1) - 3).abs().max() < 0.1
    both = torch.cat([noise, position_noise(table, seeds, 1, positions)])
    related = torch.corrcoef(torch.cat([both, both[:, :1].expand(-1, 1) + both.roll(1, 1)]))
    assert (related - torch.eye(len(related))).abs().max() < 0.015
    later = position_noise(table, seeds[1:2], 0, positions[:, 777:800])
    assert torch.equal(later[0], noise[1, 777:800])


def test_noise_has_the_values_it_always_had() -> None:
    """The hash is of integers, so its bits are known; an utterance keeps its sound."""
    table = torch.arange(1 << 16)
    seeds = torch.tensor([[fold_seed(0)], [fold_seed(2**70)]])
    drawn = position_noise(table, seeds, 2, torch.tensor([[-1, 0, 1, 10_000_000]] * 2))
    assert drawn.tolist() == [[14046, 10329, 34616, 56083], [7542, 30591, 56188, 62701]]


@pytest.mark.parametrize(
    ("change", "hop", "message"),
    [
        ({"start": -1}, 1, "4 latents from -1 do not fit"),
        ({"latents": 5, "end": 16}, 1, "row 1: 5 latents from 0 do not fit a hop of 4"),
        ({"latents": 0}, 1, "0 latents"),
        ({"end": 3}, 1, "latents 0 to 4 with end 3"),
        ({"end": 25}, 1, r"28 codes \(16 latents\)"),
        ({"codes": np.full(28, 4_096)}, 1, "row 1: code 4096 is outside"),
        ({"codes": np.full(28, -1)}, 1, "row 1: code -1 is outside"),
    ],
)
def test_rows_that_cannot_be_are_named(tiny: Codec, change: dict, hop: int, message: str) -> None:
    decoder = CodecDecoder(tiny, DecoderOptions(dtype="float64"))
    good = DecodeRow(random_codes(4).reshape(-1), 0, 4, 16, 0)
    with pytest.raises(ValueError, match=message):
        decoder.decode([good, replace(good, **change)], hop)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": (4, 2)}, r"hops \(4, 2\)"),
        ({"batch_sizes": ()}, "batch_sizes"),
        ({"dtype": "int8"}, "codec dtype int8"),
        ({"form": "stateful"}, "form stateful"),
    ],
)
def test_options_that_cannot_be_are_named(tiny: Codec, options: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CodecDecoder(tiny, DecoderOptions(**options))


def test_a_hop_outside_the_options_and_a_codec_with_attention_are_refused(
    tiny: Codec, tmp_path: Path
) -> None:
    decoder = CodecDecoder(tiny, DecoderOptions(hops=(1,)))
    with pytest.raises(ConfigurationError, match="hop 2 is not among"):
        decoder.decode([DecodeRow(random_codes(4).reshape(-1), 0, 8, 16, 0)], 2)
    with pytest.raises(ConfigurationError, match="attention"):
        CodecDecoder(make_codec(tmp_path, attn_window_size=8, decoder_dim=1_024))
