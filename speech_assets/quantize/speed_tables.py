"""Tables of decode speed: how each preset decodes alone, what it costs, whether it is worth it.

Rows of presets that are not in the table of presets, or that were measured with other settings than
theirs now, have no decision: they are trials, or say what was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.quantize.kernel_families import FAMILIES, OTHER
from speech_assets.results.markdown import EMBEDDED, NONE_YET, number, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Result = Mapping[str, Any]
    Presets = Mapping[str, Mapping[str, Any]]
    """Settings of today's presets, by name."""

_MISSING = "-"
_NOT_KNOWN = "not known"
FASTER = 1.05  # Times bf16's rate from which a precision counts as faster; below 1 / FASTER slower.
_DECIDES = ("dtype", "cpu_dtype", "head", "engine", "max_streams", "max_model_len", "kv_cache_mib",
            "vllm")  # fmt: skip
"""Settings that decide how fast an engine steps."""
_RANDOM = "The speed of a step does not depend on what its weights are; random ones have the shape."
_OLDER = "Rows with older settings were measured with others than the preset has now."
_TRIAL = "A trial is of a preset that the project does not serve."


def precision_table(
    speeds: Sequence[Result], fidelities: Sequence[Result] = (), *, presets: Presets
) -> str:
    """Three tables of each preset on each device, most bytes a step first: speed, cost, decision.

    `speeds` are results of kind `decode_speed`; `fidelities`, of the same preset and device, say
    how far each strays from its base model.
    """
    if not speeds:
        return NONE_YET
    rows = sorted(speeds, key=_place)
    notes = [EMBEDDED] * any(_is_embedded(row) for row in rows)
    notes += [_RANDOM] * any(row["config"]["weights"] == "random" for row in rows)
    notes += [_OLDER] * any(standing(row, presets) == "older settings" for row in rows)
    notes += [_TRIAL] * any(standing(row, presets) == "trial" for row in rows)
    return "\n\n".join(
        [
            _speed_table(rows, presets),
            _cost_table(rows, presets),
            _decision_table(rows, fidelities, presets),
            *notes,
        ]
    )


def kernel_table(speeds: Sequence[Result]) -> str:
    """Where the time of a decode step goes, ms of each kernel family, of results with a profile.

    Of the run under the profiler, over its decode steps; the prompt's step is among them. The
    profiler slows the host, so that idle time and Python are upper bounds; the head lies across
    families. The last column is the rate that products alone would allow, left out where kernels of
    no known family take longer than they.
    """
    families = [*FAMILIES, OTHER]
    heads = (
        "preset", "scheme", "device", *(f"{name}, ms" for name in families), "idle or Python, ms",
        "all, ms", "head, ms", "without profiler, ms", "floor, ms",
        "tokens/s if products were all",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in sorted(speeds, key=_place):
        found = {row["profile"]: row for row in result["rows"] if "share" in row}
        steps = int(result["config"]["measurement"].get("profile_steps", 0))
        if not found or not steps:
            continue
        ms = {name: row["ms"] / steps for name, row in found.items()}
        whole = max(found.values(), key=lambda row: row["share"])
        products = ms["matrix products"]
        rows.append(
            (
                _name(result),
                result["config"]["scheme"],
                result["device"]["name"],
                *(f"{ms[name]:.2f}" for name in families),
                f"{ms.get('idle', 0.0) + ms.get('python', 0.0):.2f}",
                f"{whole['ms'] / whole['share'] / steps:.2f}",
                f"{ms['head']:.2f}",
                f"{result['figures']['ms_per_token_p50']['value']:.2f}",
                f"{result['figures']['floor_ms']['value']:.2f}",
                number(1e3 / products) if products > ms[OTHER] else _MISSING,
            )
        )
    return table(heads, rows)


def standing(result: Result, presets: Presets) -> str:
    """What a row is of: "" (a preset as it is now), "older settings", or "trial" (no preset)."""
    settings = presets.get(result["config"]["preset"])
    if settings is None:
        return "trial"
    measured = result["config"].get("settings", {})
    same = all(measured.get(name) == settings.get(name) for name in _DECIDES)
    return "" if same else "older settings"


def is_realtime(result: Result) -> bool:
    """Whether a stream alone keeps up with its playback: 82.03 tokens/s or more."""
    return float(result["figures"]["tokens_per_s"]["value"]) >= REALTIME_TOKENS_PER_S


def is_valid(result: Result) -> bool:
    """Whether a measurement counts by its own rules."""
    return result.get("status", "complete") == "complete"


def reference_of(result: Result, results: Sequence[Result], presets: Presets) -> Result | None:
    """The bf16 result that others are compared with: of the same model and device, of a preset as
    it is now, its head cut, keys and values whole; of several a valid one, of those the longest.
    None without one."""
    fitting = [
        other
        for other in results
        if other["config"]["scheme"] == "bf16"
        and other["config"]["engine"]["head"] == "audio"
        and not _has_small_cache(other)
        and _group(other) == _group(result)
        and not standing(other, presets)
    ]
    return max(
        fitting,
        key=lambda other: (is_valid(other), other["figures"]["tokens_per_s"]["n"]),
        default=None,
    )


def fidelity_of(result: Result, fidelities: Sequence[Result]) -> Result | None:
    """The fidelity of what was timed: of the same preset and device, and of its real weights."""
    config = result["config"]
    if config["weights"] != "real":
        return None
    for other in fidelities:
        same_device = other["device"]["name"] == result["device"]["name"]
        if other["name"] == config["preset"] and same_device:
            return other
    return None


def decision(
    result: Result, reference: Result | None, fidelity: Result | None = None
) -> tuple[str, str]:
    """Whether a preset is worth serving ("yes", "no", "for memory", "open", "not known"), and why.

    By one rule, in this order: not realtime alone is a no; straying further than its limit is a
    no; faster than bf16 by 5 % is a yes; as fast with fewer bytes saves memory; slower is a no.
    Nothing rests on a measurement that is invalid: what needs one is not known.
    """
    if not is_valid(result):
        return _NOT_KNOWN, f"the preset's own measurement is invalid{_faults(result)}"
    rate = float(result["figures"]["tokens_per_s"]["value"])
    if not is_realtime(result):
        return "no", f"{rate:.3g} tokens/s, realtime is {REALTIME_TOKENS_PER_S:.2f}"
    if fidelity is not None:
        if not is_valid(fidelity):
            return _NOT_KNOWN, f"the measurement of its fidelity is invalid{_faults(fidelity)}"
        limit = fidelity["config"].get("limit_nats")
        kl_nats = float(fidelity["figures"]["mean_kl_nats"]["value"])
        if limit is not None and kl_nats > float(limit):
            return "no", f"strays by {kl_nats:.3g} nats a token, the limit is {float(limit):g}"
    if reference is result:
        return "yes", "realtime; the others are compared with it"
    if reference is None:
        return "open", "realtime; no bf16 was measured to compare with"
    if not is_valid(reference):
        return _NOT_KNOWN, f"the baseline's measurement is invalid{_faults(reference)}"
    times = rate / float(reference["figures"]["tokens_per_s"]["value"])
    share = _bytes(result) / _bytes(reference)
    compared = f"{times:.2f} times bf16's rate, {share:.0%} of its bytes"
    if times >= FASTER:
        return "yes", compared
    if times * FASTER < 1:
        return "no", compared
    return ("for memory" if share < 1 else "no"), compared


def _faults(result: Result) -> str:
    """Why it is invalid, in brackets; empty where it does not say."""
    why = "; ".join(map(str, result["config"].get("faults") or ()))
    return f" ({why})" if why else ""


def _speed_table(rows: Sequence[Result], presets: Presets) -> str:
    heads = (
        "speed", "scheme", "device", "weights", "ms/token p50", "tokens/s (range of runs)", "RTF",
        "realtime", "of the bandwidth floor", "date",
    )  # fmt: skip
    cells: list[Sequence[str]] = []
    for result in rows:
        figures = result["figures"]
        rate = figures["tokens_per_s"]
        cells.append(
            (
                _name(result, presets),
                result["config"]["scheme"],
                result["device"]["name"],
                _weights(result),
                number(figures["ms_per_token_p50"]["value"]),
                f"{number(rate['value'])} ({rate['ci_low']:.4g} to {rate['ci_high']:.4g})",
                number(figures["rtf"]["value"]),
                "yes" if is_realtime(result) else "no",
                f"{figures['floor_share']['value']:.0%}",
                result["started_at"][:10],
            )
        )
    return table(heads, cells)


def _cost_table(rows: Sequence[Result], presets: Presets) -> str:
    heads = (
        "cost", "device", "weights", "GB read a step", "weights, GiB", "memory p50, GiB",
        "memory at most, GiB", "start p50 (least to most), s",
    )  # fmt: skip
    cells: list[Sequence[str]] = []
    for result in rows:
        figures = result["figures"]
        memory = figures.get("memory_gib_p50")
        cells.append(
            (
                _name(result, presets),
                result["device"]["name"],
                _weights(result),
                f"{figures['bytes_per_step']['value'] / 1e9:.3f}",
                number(figures["weights_gib"]["value"]),
                number(memory["value"]) if memory else _MISSING,
                number(figures["peak_memory_gib"]["value"]),
                _start(figures["start_s"]),
            )
        )
    return table(heads, cells)


def _decision_table(rows: Sequence[Result], fidelities: Sequence[Result], presets: Presets) -> str:
    heads = ("decision", "device", "weights", "mean KL, nats", "worth serving", "reason")
    cells: list[Sequence[str]] = []
    for result in rows:
        fidelity = fidelity_of(result, fidelities)
        verdict = _MISSING, standing(result, presets)
        if not verdict[1]:
            verdict = decision(result, reference_of(result, rows, presets), fidelity)
        cells.append(
            (
                _name(result, presets),
                result["device"]["name"],
                _weights(result),
                number(fidelity["figures"]["mean_kl_nats"]["value"]) if fidelity else _MISSING,
                *verdict,
            )
        )
    return table(heads, cells)


def _start(figure: Mapping[str, Any]) -> str:
    value = f"{figure['value']:.1f}"
    if figure.get("n", 1) < 2:
        return value
    return f"{value} ({figure['ci_low']:.1f} to {figure['ci_high']:.1f})"


def _weights(result: Result) -> str:
    config = result["config"]
    return str(config["weights"]) + (f", {config['shape']}" if config["shape"] else "")


def _has_small_cache(result: Result) -> bool:
    cache = result["config"].get("settings", {}).get("vllm", {}).get("kv_cache_dtype", "auto")
    return str(cache).startswith("fp8")


def _group(result: Result) -> tuple[Any, ...]:
    config = result["config"]
    device, streams = result["device"]["name"], config["measurement"]["streams"]
    return device, streams, config["weights"], config["shape"], _is_embedded(result)


def _place(result: Result) -> tuple[Any, ...]:
    return (*_group(result), -_bytes(result), result["name"])


def _bytes(result: Result) -> float:
    return float(result["figures"]["bytes_per_step"]["value"])


def _is_embedded(result: Result) -> bool:
    return str(result["config"]["preset"]).startswith("embedded")


def _name(result: Result, presets: Presets | None = None) -> str:
    """The preset, with what a reader has to know before its numbers."""
    streams = result["config"]["measurement"]["streams"]
    caveats = ["does not count"] * (not is_valid(result))
    caveats += ["reduced"] * bool(result["reduced"])
    caveats += [f"{streams} streams"] * (streams > 1)
    if presets is not None and (kind := standing(result, presets)):
        caveats.append(kind)
    return str(result["config"]["preset"]) + (f" ({', '.join(caveats)})" if caveats else "")
