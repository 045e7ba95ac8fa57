"""Divergence, agreement, perplexity and their intervals by hand; then the process on real parts."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rounded_voice import write_rounded_voice
from small_voice import write_layout, write_small_voice

from resources.errors import StoreError
from resources.store import Store
from server.checks import RECORD_FILE, Check, Served, read_checks, weights_sha256
from server.errors import ConfigurationError, WeightsError
from server.frames import TOKENS_PER_FRAME, read_layout
from server.presets import load_preset, served_as
from speech_assets.errors import ConfigError
from speech_assets.quantize.calibration import (
    CALIBRATION_KEY,
    HELD_OUT_KEY,
    RECORD_KEY,
    CalibrationError,
    CalibrationRecord,
    SpokenText,
    pack_generations,
)
from speech_assets.quantize.fidelity import (
    TokenMeasures,
    chosen_columns,
    fidelity_figures,
    generation_row,
    log_probabilities,
    resampled,
    token_measures,
)
from speech_assets.results.result import Figure, read_result
from speech_assets.work import decode_speed_child
from speech_assets.work import fidelity as work
from speech_assets.work.worker import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parent.parent.parent
NEVER = float("-inf")


def logits(*rows: tuple[float, ...]) -> NDArray[np.float32]:
    """Logits of rows of probabilities, shifted, as a model's are."""
    with np.errstate(divide="ignore"):
        return (np.log(np.array(rows)) + 3.5).astype(np.float32)


def measures(kl: list[float], nll: list[float] | None = None) -> TokenMeasures:
    count = len(kl)
    zeros = np.zeros(count)
    return TokenMeasures(
        np.array(kl), np.ones(count, np.bool_), zeros, zeros if nll is None else np.array(nll)
    )


def test_log_probabilities_are_of_a_softmax() -> None:
    got = log_probabilities(np.array([[0.0, math.log(3.0), NEVER], [1e4, 1e4, 1e4]], np.float32))
    assert got[0, :2] == pytest.approx([math.log(1 / 4), math.log(3 / 4)], abs=1e-7)
    assert got[0, 2] == NEVER
    assert got[1] == pytest.approx([math.log(1 / 3)] * 3)


def test_divergence_of_two_rows_is_as_worked_out_by_hand() -> None:
    got = token_measures(
        logits((1 / 2, 1 / 2), (1.0, 0.0), (0.9, 0.1)),
        logits((1 / 4, 3 / 4), (1.0, 0.0), (0.9, 0.1)),
        np.array([0, 0, 1]),
    )
    # 1/2 ln (1/2 / 1/4) + 1/2 ln (1/2 / 3/4) = 1/2 ln 4/3.
    assert got.kl_nats == pytest.approx([0.5 * math.log(4 / 3), 0.0, 0.0], abs=1e-7)
    assert got.base_nll_nats == pytest.approx([math.log(2), 0.0, math.log(10)], abs=1e-6)
    assert got.nll_nats == pytest.approx([math.log(4), 0.0, math.log(10)], abs=1e-6)


def test_divergence_goes_from_the_base_model_to_the_checkpoint() -> None:
    one, other = logits((0.9, 0.1)), logits((0.5, 0.5))
    there = token_measures(one, other, np.array([0])).kl_nats[0]
    back = token_measures(other, one, np.array([0])).kl_nats[0]
    assert there == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2), abs=1e-6)
    assert back == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(5), abs=1e-6)


def test_models_agree_where_the_likeliest_row_is_the_same() -> None:
    got = token_measures(
        logits((0.6, 0.4, 0.0), (0.6, 0.4, 0.0), (0.2, 0.3, 0.5)),
        logits((0.9, 0.1, 0.0), (0.4, 0.6, 0.0), (0.0001, 0.0001, 0.9998)),
        np.array([0, 0, 0]),
    )
    assert got.agrees.tolist() == [True, False, True]


def test_rows_that_may_not_follow_count_for_nothing() -> None:
    short = token_measures(logits((0.5, 0.5)), logits((0.25, 0.75)), np.array([0]))
    padded = token_measures(logits((0.5, 0.5, 0)), logits((0.25, 0.75, 0)), np.array([0]))
    assert padded.kl_nats == pytest.approx(short.kl_nats)
    # What the checkpoint holds possible where the base model cannot is none of its rows.
    with pytest.raises(ValueError, match="logits that are not finite"):
        token_measures(logits((0.5, 0.5)), np.array([[np.nan, 0.0]], np.float32), np.array([0]))
    with pytest.raises(ValueError, match="of 2 tokens"):
        token_measures(logits((0.5, 0.5)), logits((0.5, 0.5)), np.array([0, 1]))


def test_perplexity_is_exp_of_the_mean_over_all_tokens() -> None:
    """Not a mean of perplexities: 1 token at ln 8 and 3 at ln 2 make exp((3 + 3) / 4 ln 2)."""
    one = TokenMeasures(
        np.zeros(1), np.array([True]), np.array([math.log(4)]), np.array([math.log(8)])
    )
    three = TokenMeasures(
        np.zeros(3), np.array([True, False, False]), np.zeros(3), np.full(3, math.log(2))
    )
    figures = fidelity_figures([one, three])
    assert figures["perplexity"].value == pytest.approx(2**1.5)
    assert figures["base_perplexity"].value == pytest.approx(2**0.5)
    assert figures["perplexity_difference"].value == pytest.approx(2**1.5 - 2**0.5)
    assert figures["top1_agreement"].value == 0.5
    assert figures["top1_agreement"].n == 4


def test_figures_of_a_slot_are_of_every_seventh_token() -> None:
    figures = fidelity_figures(
        [measures([7.0, 1, 1, 1, 1, 1, 1, 9.0, 3.0]), measures([2.0])], resamples=10
    )
    assert figures["mean_kl_nats_slot_0"].value == pytest.approx((7 + 9 + 2) / 3)
    assert figures["mean_kl_nats_slot_0"].n == 3
    assert figures["mean_kl_nats_slot_1"].value == pytest.approx((1 + 3) / 2)
    assert figures["mean_kl_nats_slot_6"].value == 1.0
    assert figures["mean_kl_nats"].value == pytest.approx(27 / 10)
    assert figures["mean_kl_nats"].n == 10
    assert "mean_kl_nats_slot_1" not in fidelity_figures([measures([1.0])], resamples=10)


def test_generations_are_drawn_anew_and_not_tokens() -> None:
    """Two generations, means 0 and 1: draws are 0, 1/2 and 1, a quarter, a half and a quarter."""
    means = resampled({"kl": np.array([0.0, 100.0])}, np.array([100, 100]))["kl"]
    assert set(means) == {0.0, 0.5, 1.0}
    assert np.mean(means == 0.5) == pytest.approx(0.5, abs=0.02)
    figures = fidelity_figures([measures([0.0] * 100), measures([1.0] * 100)])
    figure = figures["mean_kl_nats"]
    # 200 tokens taken for independent would give 0.43 to 0.57.
    assert (figure.ci_low, figure.value, figure.ci_high) == (0.0, 0.5, 1.0)


def test_a_draw_weighs_generations_by_their_tokens() -> None:
    means = resampled({"kl": np.array([10.0, 0.0])}, np.array([10, 90]))["kl"]
    assert sorted(set(means)) == pytest.approx([0.0, 0.1, 1.0])


def test_the_interval_of_many_generations_is_that_of_the_normal_law() -> None:
    values = np.random.default_rng(5).normal(1.0, 0.1, 400)
    figure = fidelity_figures([measures([value]) for value in values])["mean_kl_nats"]
    half = 1.96 * values.std() / 20
    assert figure.ci_low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert figure.ci_high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_intervals_are_the_same_each_time_and_one_generation_has_none() -> None:
    generations = [measures([0.1, 0.2])]
    generations += [measures([n / 7, n % 5]) for n in range(20)]
    assert fidelity_figures(generations) == fidelity_figures(generations)
    assert fidelity_figures(generations) != fidelity_figures(generations, seed=1)
    alone = fidelity_figures(generations[:1])["mean_kl_nats"]
    assert (alone.value, alone.ci_low, alone.ci_high) == (pytest.approx(0.15), None, None)
    with pytest.raises(ValueError, match="no generation with a token"):
        fidelity_figures([])


def test_a_generation_has_a_row() -> None:
    row = generation_row(measures([0.1, 0.3], [math.log(2), math.log(8)]))
    assert row["tokens"] == 2
    assert row["mean_kl_nats"] == pytest.approx(0.2)
    assert row["largest_kl_nats"] == 0.3
    assert (row["base_perplexity"], row["perplexity"]) == (1.0, pytest.approx(4.0))


def test_the_mean_decides_and_its_interval_is_shown() -> None:
    passed = work.check_of(Figure(0.0195, "nats", 900, 0.018, 0.021), 8, 0.02)
    assert passed.passed
    assert (passed.value, passed.limit) == (0.0195, 0.02)
    assert "0.018 to 0.021, 900 tokens of 8 generations), within the limit of 0.02" in passed.detail
    failed = work.check_of(Figure(0.0201, "nats", 900), 1, 0.02)
    assert not failed.passed
    assert "no interval" in failed.detail
    assert "above the limit of 0.02" in failed.detail


# ---- The process ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_voice(tmp_path_factory.mktemp("voice"), live_codes=1_500)


@pytest.fixture
def presets(voice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets of the small voice: as it is, rounded to 4 bits, and that with an fp8 cache."""
    table = tmp_path / "presets.toml"
    table.write_text(
        f"""
        [presets.tiny]
        model = "{voice}"
        codec = "none"
        checkpoint = {{ scheme = "bf16" }}
        [presets.tiny-bf16-kv]
        model = "{voice}"
        codec = "none"
        vllm = {{ kv_cache_dtype = "fp8" }}
        checkpoint = {{ scheme = "bf16" }}
        [presets.tiny-w4a16]
        model = "store"
        codec = "none"
        checkpoint = {{ scheme = "w4a16", base = "{voice}", group_size = 32 }}
        [presets.tiny-kv]
        model = "store:tiny-w4a16"
        codec = "none"
        vllm = {{ kv_cache_dtype = "fp8" }}
        [presets.tiny-e5m2]
        model = "store:tiny-w4a16"
        codec = "none"
        vllm = {{ kv_cache_dtype = "fp8_e5m2" }}
        [presets.tiny-unmade]
        model = "store"
        codec = "none"
        checkpoint = {{ scheme = "fp8", base = "{voice}" }}
        [presets.tiny-gpu]
        model = "{voice}"
        codec = "none"
        device = "cuda"
        checkpoint = {{ scheme = "bf16" }}
        [presets.tiny-plain]
        model = "{voice}"
        codec = "none"
        """
    )
    monkeypatch.setenv("SPEECH_PRESETS", str(table))


@pytest.fixture
def store(voice: Path, tmp_path: Path, presets: None) -> Store:
    """A store with a checkpoint of 4 bits and generations, made here and not by the voice."""
    del presets
    store = Store(str(tmp_path / "store"))
    folder = Path(store.root, "checkpoints", "tiny-w4a16")
    write_rounded_voice(voice, folder, "w4a16", 32)
    write_record(folder, weights_sha256(voice))
    write_calibration(store, voice)
    return store


def write_record(folder: Path, parent: str) -> None:
    record = {
        "recipe": dataclasses.asdict(load_preset(folder.name).checkpoint),
        "parent": {"weights_sha256": parent},
        "weights_sha256": weights_sha256(folder),
    }
    (folder / RECORD_FILE).write_text(json.dumps(record))


def write_calibration(store: Store, voice: Path, **changes: Any) -> None:
    """Generations of random codes; `changes` are of the record, or `held_out`, rows."""
    layout = read_layout(voice)
    rng = np.random.default_rng(3)
    rows = [
        SpokenText(
            id=f"held-out-{n:03d}",
            text=f"Held out number {n}.",
            voice="heart",
            seed=n,
            sampling={"max_tokens": 40},
            prompt_ids=(1, 5, 8, 9, 2, 3),
            token_ids=tuple(layout.token_ids(rng.integers(0, 1_500, (2 + n, 7))).tolist()),
            finish_reason="stop",
        )
        for n in range(3)
    ]
    calibration = [dataclasses.replace(rows[0], id="calibration-000", text="Calibrates.")]
    files = {
        CALIBRATION_KEY: pack_generations(calibration),
        HELD_OUT_KEY: pack_generations(changes.pop("held_out", rows)),
    }
    for key, data in files.items():
        store.write_bytes(key, data)
    from hashlib import sha256

    record = CalibrationRecord(
        base=str(voice),
        base_weights_sha256=weights_sha256(voice),
        texts_sha256="0",
        sampling={"max_tokens": 40},
        engine={},
        rows=1,
        held_out_rows=3,
        tokens=14,
        held_out_tokens=63,
        sha256={key: sha256(data).hexdigest() for key, data in files.items()},
    )
    store.write_json(RECORD_KEY, {**dataclasses.asdict(record), **changes})


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of devices apart, so that no other work holds the one of this machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def measure(store: Store, preset: str, generations: int = 0, device: str = "") -> dict[str, Any]:
    """The result that the process stores, made in this process."""
    before = {key: store.read_bytes(key) for key in store.keys("results")}
    arguments = argparse.Namespace(
        preset=preset, store=store.root, generations=generations, device=device
    )
    work._work(arguments, Reporter("fidelity"))
    # By what it holds: two of one second have one name.
    (key,) = [key for key in store.keys("results") if store.read_bytes(key) != before.get(key, b"")]
    return read_result(Path(store.path(key)))


def checks_of(preset: str, store: Store, weights: Path) -> dict[str, Check]:
    row = load_preset(preset)
    return read_checks(row.checks_path(store.root), served_as(row, weights_sha256(weights), "cpu"))


def refusal(store: Store, preset: str, kind: type[Exception], generations: int = 0) -> str:
    with pytest.raises(kind) as refused:
        measure(store, preset, generations)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_preset_gets_figures_rows_and_its_check(store: Store, voice: Path) -> None:
    result = measure(store, "tiny-w4a16")
    figures = result["figures"]
    assert {name for name in figures if "slot" not in name} == {
        *("mean_kl_nats", "top1_agreement", "perplexity", "base_perplexity"),
        "perplexity_difference",
    }
    assert {name for name in figures if name.startswith("mean_kl_nats_slot_")} == {
        f"mean_kl_nats_slot_{slot}" for slot in range(TOKENS_PER_FRAME)
    }
    assert figures["mean_kl_nats"]["n"] == 3 * 14 + 7 + 14 + 3  # The ends are chosen, too.
    assert figures["mean_kl_nats_slot_0"]["n"] == 2 + 3 + 4 + 3
    assert figures["mean_kl_nats_slot_6"]["n"] == 2 + 3 + 4
    assert 0 < figures["mean_kl_nats"]["value"] < 0.1
    assert figures["mean_kl_nats"]["ci_low"] < figures["mean_kl_nats"]["ci_high"]
    assert [row["id"] for row in result["rows"]] == [f"held-out-00{n}" for n in range(3)]
    mean = sum(row["mean_kl_nats"] * row["tokens"] for row in result["rows"]) / 66
    assert figures["mean_kl_nats"]["value"] == pytest.approx(mean)
    config = result["config"]
    assert (config["dtype"], config["kv_cache"], config["scheme"]) == (
        "bfloat16", "bfloat16", "w4a16",
    )  # fmt: skip
    assert config["base_weights_sha256"] == weights_sha256(voice)
    assert result["reduced"]  # Of 32 generations and 1,200 tokens.
    folder = Path(store.root, "checkpoints", "tiny-w4a16")
    check = checks_of("tiny-w4a16", store, folder)["fidelity"]
    assert check.limit == 0.05
    assert check.value == figures["mean_kl_nats"]["value"]
    assert check.passed  # 4 bits of this voice stray by half of the limit.
    assert config["passed"]


def test_a_recipe_that_was_edited_since_is_not_judged(store: Store) -> None:
    table = Path(os.environ["SPEECH_PRESETS"])
    whole = table.read_text()
    for edited in (whole.replace('"w4a16"', '"fp8"'), whole.replace("size = 32", "size = 64")):
        table.write_text(edited)
        says = refusal(store, "tiny-kv", WeightsError)
        assert "made as w4a16 in groups of 32 from " in says
        assert "and preset tiny-w4a16 says " in says
        assert says.endswith("materialize checkpoints for tiny-w4a16 again")
        with pytest.raises(WeightsError, match="made as w4a16"):  # Nor is it timed.
            decode_speed_child._own_checkpoint(load_preset("tiny-kv"), store.root)
    table.write_text(whole)
    assert decode_speed_child._own_checkpoint(load_preset("tiny-kv"), store.root).layers == 2


def test_a_reduced_run_leaves_the_check_of_a_whole_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(store.root, "checkpoints", "tiny-w4a16")
    measure(store, "tiny-w4a16", 2)
    first = checks_of("tiny-w4a16", store, folder)["fidelity"]
    assert (first.generations, first.reduced) == (2, True)
    assert "2 generations, reduced)" in first.detail
    with monkeypatch.context() as patch:
        patch.setattr(work, "HELD_OUT_TEXTS", range(3))
        patch.setattr(work, "MAX_TOKENS", 40)
        measure(store, "tiny-w4a16")
    whole = checks_of("tiny-w4a16", store, folder)["fidelity"]
    assert (whole.generations, whole.reduced) == (3, False)
    capfd.readouterr()
    assert measure(store, "tiny-w4a16", 2)["reduced"]
    assert checks_of("tiny-w4a16", store, folder)["fidelity"] == whole
    said = "".join(capfd.readouterr())
    assert "this run is reduced and takes no check's place: that of a whole one stands" in said
    assert work._by_limit(whole, 0.05) == whole
    other = work._by_limit(whole, 0.5)
    assert (other.passed, other.limit) == (False, 0.5)
    assert other.detail.startswith("judged by another limit than 0.5 nats: mean KL")


def test_a_store_that_cannot_be_written_is_said_before_anything_is_compared(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "compare", lambda *_, **__: pytest.fail("it was compared"))
    Path(store.root, "results").write_text("a file where a folder must be")
    assert "set SPEECH_STORE to a folder" in refusal(store, "tiny-w4a16", StoreError)
    Path(store.root, "results").unlink()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in refusal(store, "tiny-w4a16", StoreError)
    assert not list(Path(store.root).rglob("*writable*"))


def test_a_check_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    path = tmp_path / "checkpoints" / "tiny" / "checks.json"
    with pytest.raises(work.FidelityError, match=r"the check cannot be written: .*; make room"):
        work._written(path, Served("w", "s", "cpu"), Check(True, ""))


def test_another_device_than_the_presets_gives_a_result_and_no_check(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="finds no GPU"):
        measure(store, "tiny-gpu")
    result = measure(store, "tiny-gpu", device="cpu")
    assert 0 < result["figures"]["mean_kl_nats"]["value"] < 1e-3
    assert result["command"].endswith("--preset tiny-gpu --generations 3 --device cpu")
    assert not load_preset("tiny-gpu").checks_path(store.root).exists()
    measure(store, "tiny", device="cpu")  # The one that it has here.
    assert load_preset("tiny").checks_path(store.root).is_file()


def test_bf16_is_the_floor_and_an_fp8_cache_costs_more(store: Store, voice: Path) -> None:
    floor, cache, four_bits, with_cache = (
        measure(store, name)["figures"]["mean_kl_nats"]["value"]
        for name in ("tiny", "tiny-bf16-kv", "tiny-w4a16", "tiny-kv")
    )
    assert 0 < floor < 1e-3
    assert 2 * floor < cache < four_bits  # This voice hardly looks back: its weights are random.
    assert with_cache != four_bits > 10 * floor
    of_base = checks_of("tiny", store, voice)["fidelity"]
    assert of_base.passed
    assert of_base.limit == 0.001
    # The limit of a preset that is served from another's checkpoint is that one's.
    folder = Path(store.root, "checkpoints", "tiny-w4a16")
    check = checks_of("tiny-kv", store, folder)["fidelity"]
    assert (check.value, check.limit) == (with_cache, 0.05)


def test_fewer_generations_are_spread_over_all(store: Store) -> None:
    result = measure(store, "tiny", 1)
    assert [row["id"] for row in result["rows"]] == ["held-out-000"]
    assert "ci_low" not in result["figures"]["mean_kl_nats"] or (
        result["figures"]["mean_kl_nats"]["ci_low"] is None
    )
    assert "4 are asked for, of 3" in refusal(store, "tiny", ConfigError, 4)


def test_presets_that_cannot_be_compared_are_refused(store: Store) -> None:
    assert "no preset 'nobody'" in refusal(store, "nobody", ConfigurationError)
    assert "has no checkpoint table" in refusal(store, "tiny-plain", ConfigurationError)
    assert "has no checkpoint yet" in refusal(store, "tiny-unmade", WeightsError)
    assert "kv_cache_dtype 'fp8_e5m2'" in refusal(store, "tiny-e5m2", ConfigError)
    remote = Store("memory://bucket/prefix")
    assert "not a folder" in refusal(remote, "tiny-w4a16", ConfigurationError)


def test_a_checkpoint_that_is_not_whole_is_refused(store: Store, voice: Path) -> None:
    folder = Path(store.root, "checkpoints", "tiny-w4a16")
    write_record(folder, "0" * 64)
    assert "made from another base model" in refusal(store, "tiny-w4a16", WeightsError)
    write_record(folder, weights_sha256(voice))
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"group_size": 32', '"group_size": 16'))
    assert "not the weights that checkpoint.json" in refusal(store, "tiny-w4a16", WeightsError)
    (folder / "config.json").write_text(config)
    write_layout(folder, live_codes=1_400)
    write_record(folder, weights_sha256(voice))
    assert "its layout is another one" in refusal(store, "tiny-w4a16", WeightsError)
    write_layout(folder, live_codes=1_500)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    write_record(folder, weights_sha256(voice))
    assert "cut short or damaged" in refusal(store, "tiny-w4a16", WeightsError)
    (folder / RECORD_FILE).unlink()
    assert "never finished" in refusal(store, "tiny-w4a16", WeightsError)


def test_generations_that_cannot_judge_are_refused(store: Store, voice: Path) -> None:
    write_calibration(store, voice, held_out=[])
    assert "holds no generation" in refusal(store, "tiny", CalibrationError)
    write_calibration(store, voice, base_weights_sha256="0" * 64)
    assert "of another base model" in refusal(store, "tiny", CalibrationError)
    row = SpokenText("held-out-000", "First. Calibrates!", "heart", 1, {}, (1,), (64,), "length")
    write_calibration(store, voice, held_out=[row])
    assert "share the sentence 'Calibrates.'" in refusal(store, "tiny", CalibrationError)
    row = dataclasses.replace(row, text="Off.", token_ids=(64, 64))
    write_calibration(store, voice, held_out=[row])
    assert "id 64 at 1 may not follow in slot 1" in refusal(store, "tiny", work.FidelityError)
    store.write_bytes(HELD_OUT_KEY, b"other")
    assert "is not the file that" in refusal(store, "tiny", CalibrationError)
    store.delete(HELD_OUT_KEY)
    assert "held_out.jsonl.zst is missing" in refusal(store, "tiny", CalibrationError)
    store.delete(RECORD_KEY)
    assert "record.json is missing" in refusal(store, "tiny", CalibrationError)


def test_a_token_that_may_not_follow_has_no_column(voice: Path) -> None:
    layout = read_layout(voice)
    assert chosen_columns((64, 64 + 4_096 + 7), layout).tolist() == [0, 7]
    frame = layout.token_ids(np.arange(7)).tolist()
    assert chosen_columns([*frame, layout.end_of_speech], layout).tolist() == [*range(7), 1_500]
    for bad in ([64 + 1_500], [64, layout.end_of_speech], [64 + 4_096]):
        with pytest.raises(ValueError, match="may not follow in slot"):
            chosen_columns(bad, layout)


def test_the_command_ends_with_one_line_and_its_code(store: Store) -> None:
    command = [sys.executable, "-m", "speech_assets.work.fidelity", "--store", store.root]
    done = subprocess.run(
        [*command, "--preset", "tiny-unmade"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("error: ")
