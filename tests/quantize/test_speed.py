"""Figures of decode speed worked out by hand, what makes a measurement invalid, and its table."""

from __future__ import annotations

import os
import re
import sys
import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from server.engine import Sampling
from speech_assets.quantize.bandwidth import best, read_bandwidth, sizes_for
from speech_assets.quantize.kernels import busy_us, family, profile_rows
from speech_assets.quantize.quiet import Quiet, Watch, cpu_s, identity, stream_faults
from speech_assets.quantize.speed import Measured, Run, clock_share, faults, figures, rows
from speech_assets.quantize.speed_tables import decision, precision_table, reference_of
from speech_assets.quantize.stepping import Speech, SpeechEndsError

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
RUN = Run(
    seed=1,
    steps=4,
    intervals_ms=(8.0, 10.0, 10.0, 12.0),
    first_token_ms=(30.0,),
    inside_s=0.0693,
    outside_s=0.0007,
    timed_s=0.0707,
    plain_s=0.0700,
)
QUIET = Quiet(wall_s=1.0, others=0.0, foreign=0.0, starter=0.0, sole_thread=True)
MEASURED = Measured(
    runs=[RUN, replace(RUN, seed=2, intervals_ms=(5.0, 5.0, 5.0, 5.0), first_token_ms=(20.0,))],
    quiet=QUIET,
    start_s=3.0,
    bytes_per_step=50_000_000,
    bandwidth_gb_per_s=25.0,
    weights_bytes=1 << 29,
    peak_memory_bytes=1 << 30,
)


def test_figures_are_those_worked_out_by_hand() -> None:
    found = figures(MEASURED)
    # 5 5 5 5 8 10 10 12: 60 ms for 8 tokens; the fourth of eight is the median.
    assert found["ms_per_token_p50"].value == 5.0
    rate = found["tokens_per_s"]
    assert (rate.value, rate.n) == (pytest.approx(133.333, abs=1e-3), 8)
    assert (rate.ci_low, rate.ci_high) == (100.0, 200.0)  # By run: 4 in 40 ms, 4 in 20 ms.
    assert found["rtf"].value == pytest.approx(82.03125 * 0.0075)
    assert found["first_token_ms"].value == 20.0
    assert found["floor_ms"].value == 2.0  # 50 MB at 25 GB/s.
    assert found["floor_share"].value == pytest.approx(0.4)
    assert found["harness_overhead_share"].value == pytest.approx(0.01)
    assert found["clock_overhead_share"].value == pytest.approx(0.01)
    assert found["peak_memory_gib"].value == 1.0
    assert found["weights_gib"].value == 0.5
    assert "device_memory_gib" not in found


def test_a_tail_is_said_only_of_enough_tokens() -> None:
    def names(count: int) -> set[str]:
        intervals = tuple(float(n + 1) for n in range(count))
        return set(figures(replace(MEASURED, runs=[replace(RUN, intervals_ms=intervals)])))

    assert "ms_per_token_p95" not in names(39)
    assert "ms_per_token_p95" in names(40)
    assert "ms_per_token_p99" not in names(199)
    assert "ms_per_token_p99" in names(200)


def test_every_row_says_what_the_weights_are() -> None:
    measured = replace(MEASURED, profile=[{"profile": "idle", "share": 0.5, "ms": 1.0}])
    found = rows(measured, "random weights")
    assert [row["weights"] for row in found] == ["random weights"] * 3
    assert found[0]["plain_ms_per_step"] == pytest.approx(17.5)
    assert found[2]["profile"] == "idle"


def test_the_cost_of_the_clock_is_that_of_the_fastest_runs() -> None:
    runs = [replace(RUN, timed_s=0.09, plain_s=0.08), replace(RUN, timed_s=0.11, plain_s=0.10)]
    assert clock_share([*runs, replace(RUN, timed_s=0.084, plain_s=0.2)]) == pytest.approx(0.05)


def test_a_quiet_measurement_has_no_fault() -> None:
    assert faults(MEASURED) == []


@pytest.mark.parametrize(
    ("quiet", "run", "said"),
    [
        ({"stream_faults": ("stderr is redirected",)}, {}, "stderr is redirected"),
        ({"foreign": 0.4, "foreign_threads": ("log",)}, {}, r"\(log\) took 40.0% of a core"),
        ({"starter": 0.4}, {}, "starting process took 40.0%"),
        ({"others": 0.4}, {}, "other threads of the process took 40.0%"),
        ({}, {"outside_s": 0.07, "inside_s": 0.07}, "50.0% of the time passed outside steps"),
        ({}, {"timed_s": 0.077}, "reading the clock cost 10.0% or more"),
    ],
)
def test_what_disturbs_the_measured_process_is_named(
    quiet: dict[str, Any], run: dict[str, Any], said: str
) -> None:
    measured = replace(
        MEASURED,
        quiet=replace(QUIET, **quiet),
        runs=[replace(each, **run) for each in MEASURED.runs * 2],
    )
    (found,) = faults(measured)
    assert re.search(said, found)


def test_threads_of_a_parallel_engine_and_one_slow_run_are_no_fault() -> None:
    parallel = replace(QUIET, others=1.9, sole_thread=False, starter=None)
    chance = [*[replace(RUN, timed_s=0.14)] * 3, RUN]
    assert faults(replace(MEASURED, quiet=parallel, runs=chance)) == []
    assert faults(replace(MEASURED, runs=[replace(RUN, timed_s=0.14)] * 3)) == []  # Too few.


def test_a_model_that_ends_its_speech_at_once_is_refused() -> None:
    speech = Speech([[1, 2], [3]], Sampling(top_p=0.5), steps=40, streams=2)
    generation = speech.generation(7, 3)
    assert (generation.prompt_ids, generation.request_id) == ([3], "7-3")
    assert generation.sampling == Sampling(top_p=0.5, seed=70_003, max_tokens=41)
    speech.generation(7, 22)  # 20 beyond the first two, for 80 steps of a stream.
    with pytest.raises(SpeechEndsError, match="23 generations gave less than 40 steps"):
        speech.generation(7, 23)


def test_a_thread_that_the_engine_did_not_start_is_seen_with_its_time() -> None:
    streams = [identity(1), identity(2)]
    stop = threading.Event()

    def read_log() -> None:
        while not stop.is_set():
            sum(range(1_000))

    reader = threading.Thread(target=read_log, name="log-reader", daemon=True)
    known = set(threading.enumerate())  # Of tests that ran before, too.
    watch = Watch(streams, os.getppid(), known)
    reader.start()
    try:
        with watch.watching():
            while (cpu_s(reader.native_id or 0, of_thread=True) or 1.0) < 0.05:
                sum(range(1_000))
    finally:
        stop.set()
        reader.join()
    quiet = watch.quiet(sole_thread=True, stream_faults=[])
    assert quiet.foreign_threads == ("log-reader",)
    assert quiet.foreign > 0
    assert quiet.others > 0
    engines = Watch(streams, os.getppid(), known | {reader})
    with engines.watching():
        pass
    assert engines.quiet(sole_thread=True, stream_faults=[]).foreign_threads == ()


def test_a_redirected_and_a_replaced_stream_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stdout", log)
        found = stream_faults([identity(1), identity(log.fileno())])
    assert any("stderr of the measured process is not its starter's" in fault for fault in found)
    assert any("sys.stdout of the measured process was replaced" in fault for fault in found)
    assert not any(fault.startswith("stdout") for fault in found)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "matrix products"),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, ...>", "matrix products"),
        ("void marlin::Marlin<__nv_bfloat16, 1125899907892224l, 256, 1, 8, 8>", "matrix products"),
        ("void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_rowwise>", "matrix products"),
        ("aten::addmm", "matrix products"),
        ("_C::onednn_mm", "matrix products"),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits>", "attention"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", "attention"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "norms and activations"),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel>", "norms and activations"),
        ("vllm::dynamic_per_token_scaled_fp8_quant_kernel_strided", "norms and activations"),
        ("_C::fused_add_rms_norm", "norms and activations"),
        ("_gumbel_sample_kernel", "sampling"),
        ("void cub::DeviceRadixSortOnesweepKernel<...>", "sampling"),
        ("_topk_topp_kernel", "sampling"),
        ("Memcpy DtoH (Device -> Pinned)", "copies"),
        ("aten::copy_", "copies"),
        ("void at::native::index_elementwise_kernel", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor>", "other"),
    ],
)
def test_a_kernel_belongs_to_the_family_of_its_name(name: str, expected: str) -> None:
    assert family(name) == expected


def test_overlapping_kernels_keep_the_device_busy_once() -> None:
    assert busy_us([(0, 4), (2, 5), (3, 4), (10, 12)]) == 7


def test_a_profile_has_the_share_of_every_part_and_gives_the_head_back() -> None:
    import torch

    class Model:
        def compute_logits(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x

    original = Model.compute_logits
    x = torch.ones(64, 64)
    found = profile_rows(lambda: Model().compute_logits(torch.softmax(x, -1)), "cpu", [Model])
    shares = {row["profile"]: row["share"] for row in found}
    assert min(shares[part] for part in ("matrix products", "sampling", "head", "python")) > 0
    assert sum(share for part, share in shares.items() if part != "head") == pytest.approx(1)
    assert Model.compute_logits is original


def test_buffers_are_at_least_what_a_step_reads_and_leave_half_of_the_memory() -> None:
    assert sizes_for(10 * MIB, (4 * MIB, 64 * MIB), 1 << 40) == [10 * MIB, 64 * MIB]
    assert sizes_for(100 * MIB, (64 * MIB,), 1 << 40) == [100 * MIB]
    assert sizes_for(100 * MIB, (64 * MIB,), 40 * MIB) == [20 * MIB]


def test_bandwidth_is_of_real_reads_of_each_size() -> None:
    reads = read_bandwidth("cpu", 100 * MIB)
    assert {read.size_bytes for read in reads} == {100 * MIB, 256 * MIB}
    assert {read.operation for read in reads} == {"sum", "dot"}
    assert best(reads) == max(read.gb_per_s for read in reads) > 0


def _result(name: str, scheme: str, rate: float, size: int, **changes: Any) -> dict[str, Any]:
    runs = [replace(RUN, intervals_ms=(1e3 / rate,) * 4)]
    found = figures(replace(MEASURED, runs=runs, bytes_per_step=size))
    return {
        "name": name,
        "reduced": False,
        "started_at": "2026-11-30T00:00:00Z",
        "device": {"name": "chip"},
        "figures": {key: asdict(value) for key, value in found.items()},
        "config": {
            "preset": name,
            "scheme": scheme,
            "weights": "random",
            "shape": "orpheus-3b",
            "engine": {"head": "audio"},
            "measurement": {"streams": 1},
            **changes,
        },
    }


def test_a_precision_is_judged_by_realtime_then_by_bf16() -> None:
    bf16 = _result("bf16", "bf16", 400, 6_000)
    fast, equal = _result("fp8", "fp8", 600, 3_000), _result("w4", "w4a16", 404, 1_500)
    slow, late = _result("lm", "w4a16_lmhead", 300, 1_000), _result("x", "fp8", 82.0, 3_000)
    other = _result("bf16", "bf16", 900, 6_000, weights="real")
    everything = [fast, other, bf16, equal, slow, late]
    assert reference_of(fast, everything) is bf16
    assert decision(bf16, bf16) == ("yes", "realtime; the others are compared with it")
    assert decision(fast, bf16) == ("yes", "1.50 times bf16's rate, 50% of its bytes")
    assert decision(equal, bf16) == ("for memory", "1.01 times bf16's rate, 25% of its bytes")
    assert decision(slow, bf16)[0] == "no"
    assert decision(late, bf16) == ("no", "82 tokens/s, realtime is 82.03")
    assert decision(fast, None)[0] == "open"
    strays = {"figures": {"mean_kl_nats": {"value": 0.09}}, "config": {"limit_nats": 0.05}}
    assert decision(fast, bf16, strays) == ("no", "strays by 0.09 nats a token, the limit is 0.05")


def test_the_table_has_a_row_a_result_and_says_what_it_does_not_say() -> None:
    text = precision_table(
        [_result("w4", "w4a16", 404, 1_500_000_000), _result("embedded-bf16", "bf16", 400, 10**6)],
        [{"name": "w4", "figures": {"mean_kl_nats": {"value": 0.03}}, "config": {}}],
    )
    lines = text.splitlines()
    (row,) = [line for line in lines if line.startswith("| w4 |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:4] == ["w4a16", "chip", "random, orpheus-3b"]
    assert cells[5] == "404 (404 to 404)"
    assert cells[7] == "yes"
    assert cells[9] == "1.500"
    assert cells[13:16] == ["0.03", "open", "realtime; no bf16 was measured to compare with"]
    assert "say nothing about Orpheus 3B" in text
    assert "random ones have the shape" in text
    assert precision_table([]) == "No result is published yet."
