"""Bytes of a decode step worked out by hand, and shapes that a real engine runs without weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
from engines import ids, opened, run

from server.checkpoint import open_checkpoint
from server.engine import EngineFacts, EngineSettings, Generation, Sampling
from server.frames import ORPHEUS
from server.recipe import Recipe, Scheme
from speech_assets.errors import ConfigError
from speech_assets.quantize.schemes import quantization_config
from speech_assets.quantize.shapes import (
    SHAPES,
    LlamaShape,
    bytes_read,
    loaded_bytes,
    named_shape,
    shape_of,
    step_bytes,
    write_shape,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

ORPHEUS_3B, TINY = SHAPES["orpheus-3b"], SHAPES["orpheus-tiny"]
ALL_ROWS, AUDIO_ROWS = 156_940, 28_673
# Two layers: q 8x4, k and v 4x4, o 4x8, gate and up 6x4, down 4x6: 168 numbers each.
SMALL = LlamaShape(10, 4, 6, 2, 2, 1, 4)


@pytest.mark.parametrize(
    ("scheme", "rows", "gb"),
    [
        ("bf16", ALL_ROWS, 6.602),
        ("bf16", AUDIO_ROWS, 5.814),
        ("fp8", ALL_ROWS, 3.783),
        ("fp8", AUDIO_ROWS, 2.995),
        ("w4a16", ALL_ROWS, 2.418),
        ("w4a16_lmhead", ALL_ROWS, 1.702),
        ("w4a16", AUDIO_ROWS, 1.630),
    ],
)
def test_orpheus_reads_what_its_published_sizes_say(scheme: Scheme, rows: int, gb: float) -> None:
    # Body 2,818.6 M numbers, a head of 482.1 M or 88.1 M; 4 bits of group 128 are 4.125.
    found = step_bytes(ORPHEUS_3B, scheme, 128, head_rows=rows) / 1e9
    assert found == pytest.approx(gb, abs=0.004)


def test_every_number_of_a_small_shape_is_counted_once() -> None:
    norms = 5 * 4 * 2  # Two a layer and the last, of 4 numbers of 2 bytes.
    assert step_bytes(SMALL, "bf16", 4, head_rows=3) == 2 * 168 * 2 + norms + 3 * 4 * 2
    # A byte a number, and 4 of scale a row: 8 + 4 + 4 + 4 + 6 + 6 + 4 = 36 rows.
    assert step_bytes(SMALL, "fp8", 4, head_rows=3) == 2 * (168 + 36 * 4) + norms + 3 * 4 * 2
    # Half a byte a number, and 2 of scale for each 4 columns of a row, or what is left of 4:
    # rows of 4 columns 8 + 4 + 4 + 6 + 6 = 28; of 8 and of 6 columns 4 each, with 2 scales.
    four = 2 * (84 + (28 + 2 * 4 + 2 * 4) * 2) + norms
    assert step_bytes(SMALL, "w4a16", 4, head_rows=3) == four + 3 * 4 * 2
    assert step_bytes(SMALL, "w4a16_lmhead", 4, head_rows=3) == four + 3 * (2 + 2)
    assert step_bytes(SMALL, "bf16", 4, head_rows=3, value_bytes=4, head_value_bytes=2) == (
        2 * 168 * 4 + 2 * norms + 3 * 4 * 2
    )


def test_an_untied_head_is_loaded_beside_the_embedding() -> None:
    whole = step_bytes(SMALL, "bf16", 4, head_rows=10)
    assert loaded_bytes(SMALL, "bf16", 4, value_bytes=2, tied=True) == whole
    assert loaded_bytes(SMALL, "bf16", 4, value_bytes=2, tied=False) == whole + 10 * 4 * 2


def test_an_engine_reads_the_rows_that_its_head_computes() -> None:
    def read(head: str, device: str) -> int:
        rows = AUDIO_ROWS if head == "audio" else ALL_ROWS
        facts = EngineFacts(
            *("0", "in_process", head, "enforced", "vllm", "vllm", "bfloat16", device, 1, 128, rows)
        )
        return bytes_read(ORPHEUS_3B, "bf16", 128, facts, ORPHEUS)

    body = read("audio", "cuda") - AUDIO_ROWS * 3_072 * 2
    assert read("full", "cuda") == read("full", "cpu") == body + ALL_ROWS * 3_072 * 2
    assert read("audio", "cpu") == body + 4_096 * 3_072 * 4  # Of the due slot, in float32.


def test_a_shape_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"no shape 'orpheus-9b'.*orpheus-3b"):
        named_shape("orpheus-9b")


def test_the_shape_of_the_embedded_voice_has_its_bytes(tmp_path: Path) -> None:
    from server.presets import load_preset

    folder = load_preset("embedded").model_location().folder
    assert folder is not None
    checkpoint = open_checkpoint(folder)
    shape = shape_of(checkpoint.folder)
    assert (shape.vocabulary_size, shape.layers) == (checkpoint.vocabulary_size, checkpoint.layers)
    loaded = loaded_bytes(shape, "bf16", 128, value_bytes=2, tied=checkpoint.tied_head)
    header_bytes = checkpoint.weights_bytes - loaded
    assert 0 < header_bytes < 20_000  # Names and shapes of 56 tensors.


@pytest.mark.parametrize(
    ("scheme", "cache"),
    [
        *((scheme, "auto") for scheme in get_args(Scheme) if scheme != "fp8_weight_only"),
        ("w4a16", "fp8"),
    ],
)
def test_an_engine_runs_a_shape_without_weights(scheme: Scheme, cache: str, tmp_path: Path) -> None:
    quantization = None if scheme == "bf16" else quantization_config(Recipe(scheme))
    checkpoint = write_shape(tmp_path, TINY, scheme, quantization)
    settings = EngineSettings(
        dtype="bfloat16",
        head="full" if scheme == "w4a16_lmhead" else "audio",
        max_streams=1,
        max_model_len=256,
        vllm_args={"kv_cache_dtype": cache},
    )
    with opened(checkpoint, settings) as engine:
        sampling = Sampling(max_tokens=14, repetition_penalty=1.1)
        prompt = checkpoint.layout.prompt([1, 2, 3])
        outputs = run(engine, Generation("r", prompt, sampling))["r"]
        facts = engine.facts
    got = ids(outputs)
    assert len(got) == 14
    if facts.head == "audio":
        assert facts.vocabulary_rows == AUDIO_ROWS
        checkpoint.layout.codes(got)  # Raises on an id off its slot.
    else:
        assert facts.vocabulary_rows == ALL_ROWS
