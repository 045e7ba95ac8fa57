"""Figures of decode speed worked out by hand, what makes a measurement invalid, and its table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from server.engine import Sampling
from speech_assets.quantize.bandwidth import Read, best, read_bandwidth, sizes_for
from speech_assets.quantize.kernel_families import FAMILIES, family
from speech_assets.quantize.kernels import busy_us, profile_rows
from speech_assets.quantize.quiet import Quiet, Watch, cpu_s, identity, stream_faults
from speech_assets.quantize.speed import (
    WAITED_LIMIT,
    Measured,
    Run,
    clock_share,
    faults,
    figures,
    rows,
)
from speech_assets.quantize.speed_tables import (
    decision,
    fidelity_of,
    kernel_table,
    precision_table,
    reference_of,
    standing,
)
from speech_assets.quantize.stepping import Speech, SpeechEndsError

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
QUIET = Quiet(wall_s=1.0, others_cores=0.0, foreign_cores=0.0, starter_cores=0.0, sole_thread=True)
MEASURED = Measured(
    runs=[RUN, replace(RUN, seed=2, intervals_ms=(5.0, 5.0, 5.0, 5.0), first_token_ms=(20.0,))],
    quiet=QUIET,
    starts_s=[3.0, 7.0, 4.0],
    bytes_per_step=50_000_000,
    bandwidth_gb_per_s=25.0,
    weights_bytes=1 << 29,
    memory_bytes=[1 << 28, 3 << 28, 1 << 29],
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
    start, memory = found["start_s"], found["memory_gib_p50"]
    assert (start.value, start.n, start.ci_low, start.ci_high) == (4.0, 3, 3.0, 7.0)
    assert (memory.value, memory.n, memory.ci_low, memory.ci_high) == (0.5, 3, 0.25, 0.75)
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
        ({"foreign_cores": 0.4, "foreign_threads": ("log",)}, {}, r"\(log\) took 40.0% of a core"),
        ({"starter_cores": 0.4}, {}, "starting process took 40.0%"),
        ({"waited_share": 0.4}, {}, "waited for a core in 40.0% of the time"),
        ({"others_cores": 0.4}, {}, "other threads of the process took 40.0%"),
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
    parallel = replace(QUIET, others_cores=1.9, sole_thread=False, starter_cores=None)
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
    quiet = watch.quiet(sole_thread=True, faults_at_start=[])
    assert quiet.foreign_threads == ("log-reader",)
    assert quiet.foreign_cores > 0
    assert quiet.others_cores > 0
    engines = Watch(streams, os.getppid(), known | {reader})
    with engines.watching():
        pass
    assert engines.quiet(sole_thread=True, faults_at_start=[]).foreign_threads == ()


def _burn(seconds: float) -> None:
    """Take that much CPU time of this thread."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        sum(range(1_000))


def test_a_thread_that_ends_during_a_run_is_seen_with_its_time() -> None:
    go = threading.Event()

    def read_log() -> None:
        go.wait()
        _burn(0.2)

    before = threading.Thread(target=read_log, name="was-there")
    watch = Watch([identity(1), identity(2)], os.getppid(), set(threading.enumerate()))
    before.start()
    within = threading.Thread(target=_burn, args=(0.2,), name="came-and-went")
    with watch.watching():
        go.set()
        within.start()
        for thread in (before, within):
            thread.join()
            while Path(f"/proc/self/task/{thread.native_id}").exists():
                pass  # Python is done with it a moment before the system is.
    quiet = watch.quiet(sole_thread=True, faults_at_start=[])
    assert quiet.foreign_threads == ("was-there",)  # Of the other one its time alone is known.
    assert quiet.foreign_cores * quiet.wall_s == pytest.approx(0.4, abs=0.1)
    assert quiet.foreign_cores <= quiet.others_cores


def test_a_thread_that_has_to_share_its_core_is_seen_to_wait() -> None:
    cores = os.sched_getaffinity(0)
    core = min(cores)
    watch = Watch([identity(1), identity(2)], os.getppid(), set())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            os.sched_setaffinity(other.pid, {core})
            os.sched_setaffinity(0, {core})  # This thread alone.
            with watch.watching():
                _burn(0.3)
        finally:
            os.sched_setaffinity(0, cores)
            other.kill()
    share = watch.quiet(sole_thread=True, faults_at_start=[]).waited_share
    assert share is not None
    assert share > WAITED_LIMIT


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
    found = profile_rows(
        lambda: Model().compute_logits(torch.softmax(x.tanh(), -1)), "cpu", [Model]
    )
    shares = {row["profile"]: row["share"] for row in found}
    (other,) = [row for row in found if row["profile"] == "other"]
    assert "aten::tanh" in other["largest"]
    assert min(shares[part] for part in ("matrix products", "sampling", "head", "python")) > 0
    assert sum(share for part, share in shares.items() if part != "head") == pytest.approx(1)
    assert Model.compute_logits is original


def test_buffers_are_at_least_what_a_step_reads_and_leave_half_of_the_memory() -> None:
    assert sizes_for(10 * MIB, (4 * MIB, 64 * MIB)) == [10 * MIB, 64 * MIB]
    assert sizes_for(100 * MIB, (64 * MIB,), 1 << 40) == [100 * MIB]
    assert sizes_for(100 * MIB, (64 * MIB,), 40 * MIB) == [20 * MIB]


def test_bandwidth_is_of_real_reads_of_each_size() -> None:
    reads = read_bandwidth("cpu", 100 * MIB)
    assert {read.size_bytes for read in reads} == {100 * MIB, 256 * MIB}
    assert {read.operation for read in reads} == {"sum", "dot"}
    assert min(read.gb_per_s for read in reads) > 0
    rates = [Read(MIB, "sum", 3.0), Read(MIB, "dot", 9.0), Read(2 * MIB, "sum", 4.0)]
    assert best(rates) == 9.0


SETTINGS = {"max_streams": 16, "dtype": "bfloat16", "vllm": {}}
PRESETS = {name: SETTINGS for name in ("bf16", "fp8", "w4", "lm", "x", "embedded-bf16")}


def _result(name: str, scheme: str, rate: float, size: int, **changes: Any) -> dict[str, Any]:
    runs = [replace(RUN, intervals_ms=(1e3 / rate,) * 4)]
    found = figures(replace(MEASURED, runs=runs, bytes_per_step=size))
    return {
        "name": name,
        "reduced": False,
        "started_at": "2026-11-30T00:00:00Z",
        "device": {"name": "chip"},
        "rows": [],
        "figures": {key: asdict(value) for key, value in found.items()},
        "config": {
            "preset": name,
            "scheme": scheme,
            "weights": "random",
            "shape": "orpheus-3b",
            "settings": SETTINGS,
            "engine": {"head": "audio"},
            "measurement": {"streams": 1, "profile_steps": 10},
            **changes,
        },
    }


def _fidelity(name: str, kl_nats: float, limit_nats: float, device: str = "chip") -> dict[str, Any]:
    return {
        "name": name,
        "device": {"name": device},
        "figures": {"mean_kl_nats": {"value": kl_nats}},
        "config": {"limit_nats": limit_nats},
    }


def _cells(text: str, table: str, name: str) -> list[str]:
    """Cells of the row of `name` in the table that begins with the heading `table`."""
    (part,) = [part for part in text.split("\n\n") if part.startswith(f"| {table} |")]
    (row,) = [line for line in part.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_precision_is_judged_by_realtime_then_by_bf16() -> None:
    bf16 = _result("bf16", "bf16", 400, 6_000)
    fast, equal = _result("fp8", "fp8", 600, 3_000), _result("w4", "w4a16", 404, 1_500)
    slow, late = _result("lm", "w4a16_lmhead", 300, 1_000), _result("x", "fp8", 82.0, 3_000)
    other = _result("bf16", "bf16", 900, 6_000, weights="real")
    everything = [fast, other, bf16, equal, slow, late]
    assert reference_of(fast, everything, PRESETS) is bf16
    assert decision(bf16, bf16) == ("yes", "realtime; the others are compared with it")
    assert decision(fast, bf16) == ("yes", "1.50 times bf16's rate, 50% of its bytes")
    assert decision(equal, bf16) == ("for memory", "1.01 times bf16's rate, 25% of its bytes")
    assert decision(slow, bf16)[0] == "no"
    assert decision(late, bf16) == ("no", "82 tokens/s, realtime is 82.03")
    assert decision(fast, None)[0] == "open"
    strays = _fidelity("fp8", 0.09, 0.05)
    assert decision(fast, bf16, strays) == ("no", "strays by 0.09 nats a token, the limit is 0.05")


def test_nothing_is_decided_by_an_invalid_measurement() -> None:
    bf16, fast = _result("bf16", "bf16", 400, 6_000), _result("fp8", "fp8", 600, 3_000)
    bad = {**bf16, "status": "invalid", "config": {**bf16["config"], "faults": ["busy", "slow"]}}
    why = "the baseline's measurement is invalid (busy; slow)"
    assert decision(fast, bad) == ("not known", why)
    assert decision(bad, bad) == (
        "not known",
        "the preset's own measurement is invalid (busy; slow)",
    )
    # Neither realtime nor its limit is of the baseline's.
    assert decision(_result("x", "fp8", 82.0, 3_000), bad)[0] == "no"
    assert decision(fast, bad, _fidelity("fp8", 0.09, 0.05))[0] == "no"
    strays = {**_fidelity("fp8", 0.09, 0.05), "status": "invalid"}
    assert decision(fast, bf16, strays) == (
        "not known",
        "the measurement of its fidelity is invalid",
    )
    # A valid one is compared with, however short.
    short = _result("bf16", "bf16", 390, 6_000)
    short["figures"]["tokens_per_s"]["n"] = 1
    assert reference_of(fast, [bad, short, fast], PRESETS) is short


def test_what_others_are_compared_with_is_the_longest_run_of_a_preset_as_it_is_now() -> None:
    fast = _result("fp8", "fp8", 600, 3_000)
    trial = _result("a-trial", "bf16", 900, 6_000)
    older = _result("bf16", "bf16", 800, 6_000, settings={**SETTINGS, "max_streams": 8})
    kv = _result("x", "bf16", 700, 6_000, settings={**SETTINGS, "vllm": {"kv_cache_dtype": "fp8"}})
    short, long = _result("bf16", "bf16", 300, 6_000), _result("bf16", "bf16", 400, 6_000)
    long["figures"]["tokens_per_s"]["n"] = 2_100
    presets = {**PRESETS, "x": kv["config"]["settings"]}
    assert reference_of(fast, [trial, older, kv, short, long], presets) is long
    assert reference_of(fast, [trial, older, kv], presets) is None
    assert [standing(one, presets) for one in (trial, older, kv)] == ["trial", "older settings", ""]


def test_fidelity_is_of_the_same_preset_and_device_and_of_real_weights() -> None:
    of_chip, of_other = _fidelity("w4", 0.03, 0.05), _fidelity("w4", 0.01, 0.05, "other chip")
    real = _result("w4", "w4a16", 404, 1_500, weights="real", shape="")
    assert fidelity_of(real, [of_other, of_chip]) is of_chip
    assert fidelity_of(real, [of_other]) is None
    assert fidelity_of(_result("w4", "w4a16", 404, 1_500), [of_chip]) is None  # Random ones.


def test_the_tables_have_a_row_a_result_and_say_what_they_do_not_say() -> None:
    real = {"weights": "real", "shape": ""}
    text = precision_table(
        [
            _result("w4", "w4a16", 404, 1_500_000_000),
            _result("embedded-bf16", "bf16", 400, 10**6, **real),
        ],
        [_fidelity("embedded-bf16", 0.03, 0.05)],
        presets=PRESETS,
    )
    speed = _cells(text, "speed", "w4")
    assert speed[1:4] == ["w4a16", "chip", "random, orpheus-3b"]
    assert speed[5] == "404 (404 to 404)"
    assert speed[7] == "yes"
    assert _cells(text, "cost", "w4")[3:] == ["1.500", "0.5", "0.5", "1", "4.0 (3.0 to 7.0)"]
    assert _cells(text, "decision", "w4")[3:] == [
        "-", "open", "realtime; no bf16 was measured to compare with"
    ]  # fmt: skip
    assert _cells(text, "decision", "embedded-bf16")[3:5] == ["0.03", "yes"]
    assert "say nothing about Orpheus 3B" in text
    assert "random ones have the shape" in text
    assert "trial" not in text
    assert precision_table([], presets={}) == "No result is published yet."


def test_trials_and_older_settings_have_no_decision() -> None:
    older = _result("fp8", "fp8", 600, 3_000, settings={**SETTINGS, "vllm": {"backend": "x"}})
    rows = [_result("bf16", "bf16", 400, 6_000), older, _result("mine", "fp8", 600, 3_000)]
    text = precision_table(rows, presets=PRESETS)
    assert _cells(text, "decision", "fp8 (older settings)")[3:] == ["-", "-", "older settings"]
    assert _cells(text, "decision", "mine (trial)")[3:] == ["-", "-", "trial"]
    assert _cells(text, "decision", "bf16")[4] == "yes"
    assert "A trial is of a preset" in text
    assert "measured with others than the preset has now" in text


def test_the_kernel_table_has_milliseconds_a_step_and_what_products_alone_allow() -> None:
    profiled = _result("fp8", "fp8", 600, 3_000)
    shares = dict.fromkeys([*FAMILIES, "other"], 0.05) | {"matrix products": 0.4, "idle": 0.2}
    profiled["rows"] = [
        {"profile": name, "share": share, "ms": 100 * share}
        for name, share in {**shares, "head": 0.01}.items()
    ]
    text = kernel_table([_result("bf16", "bf16", 400, 6_000), profiled])
    heads, _, row = ([cell.strip() for cell in line.strip("|").split("|")]
                     for line in text.splitlines())  # fmt: skip
    cells = dict(zip(heads, row, strict=True))
    # 10 steps in 100 ms: 4 ms of products a step, so that 250 tokens/s are the most.
    assert cells["matrix products, ms"] == "4.00"
    assert (cells["idle or Python, ms"], cells["all, ms"], cells["head, ms"]) == (
        *("2.00", "10.00", "0.10"),
    )
    assert cells["without profiler, ms"] == "1.67"
    assert cells["tokens/s if products were all"] == "250"
    profiled["rows"][list(shares).index("other")]["ms"] = 41  # Products of a name not known.
    assert kernel_table([profiled]).splitlines()[-1].endswith("| - |")
    assert kernel_table([]) == "No result is published yet."
