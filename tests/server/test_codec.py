"""The codec loads what SNAC loads, and batches give the codes of clips encoded alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from snac import SNAC

from server import frames
from server.codec import float32_products, load_codec, read_identity
from server.codec_encoder import BatchEncoder
from server.errors import ConfigurationError, WeightsError
from speech_assets.corpus.audio import decode_clip

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.codec import Codec

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"


@pytest.fixture(scope="module")
def codec() -> Codec:
    torch.set_num_threads(1)
    return load_codec(CODEC)


@pytest.fixture(scope="module")
def clips(short_rows: list[dict]) -> list[NDArray[np.float32]]:
    return [decode_clip(row["audio"]["bytes"], path=row["path"]).samples for row in short_rows[:7]]


def test_codes_are_those_of_the_snac_package(codec: Codec, clips: list) -> None:
    reference = SNAC.from_pretrained(str(CODEC)).float().eval()
    for clip in clips[:3]:
        with torch.inference_mode():
            levels = reference.encode(torch.from_numpy(clip)[None, None])
        expected = frames.slots_from_levels([level[0].numpy() for level in levels])
        assert np.array_equal(codec.encode(clip), expected)
        assert len(expected) == frames.frame_count(len(clip))


def test_a_batch_of_unequal_clips_gives_the_codes_of_each_alone(codec: Codec, clips: list) -> None:
    batched = BatchEncoder(codec).encode(clips)
    assert len({len(codes) for codes in batched}) > 1
    for clip, codes in zip(clips, batched, strict=True):
        assert np.array_equal(codes, codec.encode(clip))


def test_without_the_mask_padding_would_change_codes(codec: Codec, clips: list) -> None:
    """What the masks are for: were this to pass without them, they could go."""
    longest = max(map(len, clips)) + 10 * frames.SAMPLES_PER_FRAME
    changed = 0
    for clip in clips:
        alone = codec.encode(clip)
        padded = codec.encode(np.pad(clip, (0, longest - len(clip))))[: len(alone)]
        changed += int((alone != padded).sum())
    assert changed > 0


def test_a_batch_of_equal_clips_gives_the_codes_of_each_alone(codec: Codec, clips: list) -> None:
    width = min(frames.frame_count(len(clip)) for clip in clips) * frames.SAMPLES_PER_FRAME
    equal = [clip[: width - 3 * i] for i, clip in enumerate(clips)]
    for clip, codes in zip(equal, BatchEncoder(codec).encode(equal), strict=True):
        assert np.array_equal(codes, codec.encode(clip))


def test_decoding_is_the_same_each_time_unless_noise_is_asked_for(codec: Codec) -> None:
    codes = np.random.default_rng(1).integers(0, 4_096, (5, 7)).astype(np.uint16)
    audio = codec.decode(codes)
    assert audio.shape == (5 * frames.SAMPLES_PER_FRAME,)
    assert np.abs(audio).max() <= 1
    assert np.array_equal(audio, codec.decode(codes))
    assert not np.array_equal(audio, codec.decode(codes, noise=True))


def test_identity_names_the_weights(codec: Codec) -> None:
    weights = hashlib.sha256((CODEC / "pytorch_model.bin").read_bytes()).hexdigest()
    assert codec.identity == read_identity(CODEC)
    assert codec.identity.weights_sha256 == weights
    assert codec.identity.name == f"snac-5.1M-{weights[:12]}"


def test_random_weights_only_on_request_and_say_untrained(tmp_path: Path) -> None:
    shutil.copy(CODEC / "config.json", tmp_path)
    with pytest.raises(WeightsError, match=r"no weights file.*allow_untrained"):
        load_codec(tmp_path)
    first = load_codec(tmp_path, allow_untrained=True)
    assert not first.identity.trained
    assert first.identity.name.startswith("untrained-")
    clip = np.random.default_rng(0).normal(0, 0.1, 6_000).astype(np.float32)
    again = load_codec(tmp_path, allow_untrained=True)
    assert np.array_equal(first.encode(clip), again.encode(clip))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 44_100}, "sampling_rate is 44100, the token layout needs 24000"),
        ({"vq_strides": [8, 4, 2, 1]}, "vq_strides is"),
        ({"codebook_size": 1_024}, "codebook_size is 1024"),
        ({"encoder_rates": [3, 3, 7, 7]}, "product of encoder_rates is 441"),
    ],
)
def test_a_codec_of_another_layout_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    config = json.loads((CODEC / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(WeightsError, match=message):
        load_codec(tmp_path, allow_untrained=True)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"config\.json: no such file; a codec folder"):
        load_codec(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(WeightsError, match=r"not readable as JSON: .*fetch the codec again"):
        load_codec(tmp_path)
    shutil.copy(CODEC / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK not a model")
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin: weights do not load"):
        load_codec(tmp_path)


def test_cuda_options_on_the_cpu_are_refused(codec: Codec) -> None:
    with pytest.raises(ConfigurationError, match="compiled=True"):
        BatchEncoder(codec, compiled=True)
    with pytest.raises(ConfigurationError, match="precision=fp16"):
        BatchEncoder(codec, precision="fp16")


def test_who_needs_exact_products_waits_until_rounded_ones_are_over() -> None:
    def flags() -> tuple[object, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    seen: list[tuple[object, bool]] = []

    def exactly() -> None:
        with float32_products(tf32=False):
            seen.append(flags())

    with float32_products(tf32=True):
        thread = threading.Thread(target=exactly)
        thread.start()
        thread.join(0.05)
        assert (flags(), seen) == ((True, True), [])
    thread.join()
    assert (flags(), seen) == ((False, False), [(False, False)])
