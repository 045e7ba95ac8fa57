"""Ways of encoding beside each other: what a row says, what a way that cannot run costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from resources.store import Store
from server.codec import load_codec
from speech_assets.corpus.shards import Shard
from speech_assets.errors import ConfigError
from speech_assets.results.result import parse_result
from speech_assets.results.tables import ablation_table
from speech_assets.work import ablation
from speech_assets.work.ablation import Bench, Reference, measure, result_of
from speech_assets.work.encoder_profile import family
from speech_assets.work.token_shards import SpeechShard
from speech_assets.work.tokenize_ways import Way, parse_ways, ways_for
from speech_assets.work.tokenizer import EncodeOptions

if TYPE_CHECKING:
    from server.codec import Codec

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    torch.set_num_threads(1)
    codec: Codec = load_codec(CODEC)
    rng = np.random.default_rng(2)
    clips = [rng.normal(0, 3_000, n).astype(np.int16) for n in (9_000, 5_000, 12_000)]
    shard = Shard("train", 0)
    speech = [SpeechShard(shard, "made", [], clips)]
    store = Store(str(tmp_path_factory.mktemp("store")))
    return Bench(store, [shard], speech, codec, Reference.of(codec, speech), 1, loop=False)


def test_every_way_has_its_speed_and_what_it_changes(bench: Bench) -> None:
    ways = [*ways_for("cpu"), Way("fused", EncodeOptions(0, kernels="triton"))]
    said: list[str] = []
    rows = measure(bench, ways, said.append, profiled=True)
    assert len(rows) == 4
    for row in rows[:3]:
        assert row["encoder_hours_per_min"] > 0
        # Without a budget too: a batch of unequal clips has masks.
        assert row["agreement"] == 1.0
        assert row["codes_compared"] == 7 * (5 + 3 + 6)
        assert [row[f"codes_changed_level_{level}"] for level in range(3)] == [0, 0, 0]
    assert "they run on CUDA" in rows[3]["error"]
    [told] = said
    assert told.startswith("fused: Traceback")
    with pytest.raises(ConfigError, match="no way of encoding could be measured"):
        measure(bench, ways[3:], said.append)
    result = result_of(
        bench,
        rows,
        device={"name": "A CPU"},
        started_at="2026-11-30T10:00:00Z",
        command="python -m speech_assets.work.bench_tokenize --ablate",
        corpus="noise",
        speech_hours_per_min=2.5,
    )
    value: dict[str, Any] = parse_result(json.dumps(result.as_json()).encode(), "it")
    table = ablation_table([value])
    assert "| 16 clips a batch |" in table
    assert "| 0; 0; 0 | 98 |" in table
    assert "fused: encoder kernels triton" in table
    assert value["figures"]["encoder_hours_per_min_16_clips_a_batch"]["value"] > 0
    assert value["config"]["traffic"][0]["channels"] == 24


def test_a_way_that_fails_by_a_fault_of_the_code_is_not_passed_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(*_: object) -> None:
        raise TypeError("a fault")

    monkeypatch.setattr(Bench, "row", row)
    with pytest.raises(TypeError, match="a fault"):
        measure(bench, ways_for("cpu"), lambda _: None)


def test_the_loop_is_run_each_round_and_its_seconds_are_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([4.0, 1.0, 2.0])

    def loop(*given: Any, read_ahead: int) -> list[str]:
        assert read_ahead == 3
        figures = {"hours_per_min": next(rates), "device_busy_share": 0.5}
        given[3].result("figures", **figures, encode_capacity_hours_per_min=3.0)
        given[3].result("shard", agreement=1.0)
        return []

    monkeypatch.setattr(ablation, "tokenize_shards", loop)
    [way] = [way for way in ways_for("cpu") if way.name == "shards read ahead"]
    row = replace(bench, rounds=3, loop=True).row(way)
    assert row["loop_s"] == pytest.approx([bench.audio_min / rate for rate in (4.0, 1.0, 2.0)])
    assert (row["loop_hours_per_min"], row["loop_agreement"]) == (2.0, 1.0)
    earlier = {"way": "one", "encoder_hours_per_min": 9.0, "loop_hours_per_min": 3.0}
    result: dict[str, Any] = {
        "name": "snac",
        "device": {"name": "A CPU"},
        "config": {"trained": True, "audio_minutes": 12.0},
        "rows": [{**earlier, "loop_s": [6.0, 5.0, 7.0]}, earlier],
        "started_at": "2026-12-01T00:00:00Z",
        "command": "python -m it",
    }
    table = ablation_table([result])
    assert "| 9 | 3 | 3 of 6 |" in table
    assert "| 9 | 3 | 1 of 4 |" in table


def test_a_changed_code_is_counted_on_its_level(bench: Bench) -> None:
    shard = bench.speech[0]
    made = [[bench.codec.encode(shard.samples(clip)) for clip in range(len(shard.clips))]]
    made[0][1] = made[0][1].copy()
    made[0][1][0, [1, 2, 6]] ^= 1
    agreement = bench.reference.compare(made)
    assert [t - e for t, e in zip(agreement.total, agreement.equal, strict=True)] == [0, 1, 2]


def test_ways_are_named_and_an_unknown_one_is_refused() -> None:
    names = [way.name for way in ways_for("cuda")]
    assert len(set(names)) == len(names) > len(ways_for("cpu"))
    chosen = parse_ways("fused kernels, fp16x3; batches by samples", ways_for("cuda"))
    assert [way.options.product for way in chosen] == ["fp16x3", None]
    assert parse_ways("", ways_for("cpu")) == ways_for("cpu")
    with pytest.raises(ConfigError, match="--ways 'faster'"):
        parse_ways("faster", ways_for("cpu"))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("residual_unit", "residual units, fused"),
        ("first_convolution", "first and last convolution, fused"),
        ("conv_depthwise2d_forward_kernel", "depthwise convolutions"),
        ("sm90_xmma_fprop_implicit_gemm_f32f32", "convolutions"),
        ("ampere_sgemm_128x64_tn", "matrix products"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4>", "elementwise"),
        ("something", "other"),
    ],
)
def test_kernels_have_families(kernel: str, expected: str) -> None:
    assert family(kernel) == expected
