"""A trace of a GPU's kernels: what of each step was the codec's, the model's, and nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest

import server
from speech_assets.work.device_trace import CODEC_KERNELS, Kernel, trace_row

MODEL = [
    Kernel("nvjet_tst_64x8", 7, 0.0, 40.0),
    Kernel("flash_fwd_splitkv", 7, 40.0, 60.0),
    Kernel("nvjet_tst_64x8", 7, 100.0, 140.0),
]
CODEC = [Kernel("depthwise", 20, 50.0, 80.0), Kernel("Memcpy DtoH", 20, 80.0, 85.0)]


def test_time_is_the_models_the_codecs_both_or_nobodys() -> None:
    row = trace_row([*CODEC, *MODEL], steps=2)
    assert row["traced_steps"] == 2
    assert row["lm_ms"] == pytest.approx(0.050)
    assert row["codec_ms"] == pytest.approx(0.0175)  # What runs on its stream, copies too.
    assert row["overlap_ms"] == pytest.approx(0.005)
    assert row["idle_ms"] == pytest.approx((140 - 85 - 40) / 2e3)
    parts = row["lm_ms"] + row["codec_ms"] - row["overlap_ms"] + row["idle_ms"]
    assert parts == pytest.approx(0.140 / 2)
    assert row["kernel_ms"] == {
        "attention": pytest.approx(0.010),
        "matrix products": pytest.approx(0.040),
    }


def test_without_kernels_or_steps_there_is_no_trace() -> None:
    assert trace_row([], steps=3) == {}
    assert trace_row(MODEL, steps=0) == {}


def test_the_codecs_kernels_go_by_the_names_that_they_have() -> None:
    text = (Path(server.__file__).parent / "codec_kernels.py").read_text(encoding="utf-8")
    for name in CODEC_KERNELS:
        assert f"\ndef {name}(" in text
