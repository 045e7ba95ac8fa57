"""The precision table: how each preset decodes alone, and whether it is worth serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.results.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MISSING = "-"
FASTER = 1.05  # Times bf16's rate from which a precision counts as faster; below 1 / FASTER slower.
_EMBEDDED = (
    "Presets called embedded are of the small voice that ships with the project: their figures say "
    "nothing about Orpheus 3B."
)
_RANDOM = "The speed of a step does not depend on what its weights are; random ones have the shape."


def precision_table(
    speeds: Sequence[Mapping[str, Any]], fidelities: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Decode speed of each preset on each device, most bytes a step first, and what follows.

    `speeds` are results of kind `decode_speed`; `fidelities`, of presets by name, say how far each
    strays from its base model.
    """
    heads = (
        "preset", "precision", "device", "weights", "ms/token p50", "tokens/s (range of runs)",
        "RTF", "realtime", "of the bandwidth floor", "GB read a step", "weights, GiB",
        "peak memory, GiB", "start, s", "mean KL, nats", "worth serving", "reason", "date",
    )  # fmt: skip
    strays = {result["name"]: result for result in fidelities}
    rows: list[Sequence[str]] = []
    for result in sorted(speeds, key=_place):
        figures, config = result["figures"], result["config"]
        fidelity = strays.get(config["preset"])
        rate = figures["tokens_per_s"]
        rows.append(
            (
                config["preset"] + _caveats(result),
                config["scheme"],
                result["device"]["name"],
                config["weights"] + (f", {config['shape']}" if config["shape"] else ""),
                _number(figures["ms_per_token_p50"]),
                f"{_number(rate)} ({rate['ci_low']:.4g} to {rate['ci_high']:.4g})",
                _number(figures["rtf"]),
                "yes" if is_realtime(result) else "no",
                f"{figures['floor_share']['value']:.0%}",
                f"{figures['bytes_per_step']['value'] / 1e9:.3f}",
                _number(figures["weights_gib"]),
                _number(figures["peak_memory_gib"]),
                f"{figures['start_s']['value']:.1f}",
                _number(fidelity["figures"]["mean_kl_nats"]) if fidelity else _MISSING,
                *decision(result, reference_of(result, speeds), fidelity),
                result["started_at"][:10],
            )
        )
    notes = [_EMBEDDED] * any(_is_embedded(result) for result in speeds)
    notes += [_RANDOM] * any(result["config"]["weights"] == "random" for result in speeds)
    return "\n\n".join([table(heads, rows), *notes])


def is_realtime(result: Mapping[str, Any]) -> bool:
    """Whether a stream alone keeps up with its playback: 82.03 tokens/s or more."""
    return float(result["figures"]["tokens_per_s"]["value"]) >= REALTIME_TOKENS_PER_S


def reference_of(
    result: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The bf16 result with its head cut of the same model and device; None without one."""
    for other in results:
        config = other["config"]
        if (
            config["scheme"] == "bf16"
            and config["engine"]["head"] == "audio"
            and _group(other) == _group(result)
        ):
            return other
    return None


def decision(
    result: Mapping[str, Any],
    reference: Mapping[str, Any] | None,
    fidelity: Mapping[str, Any] | None = None,
) -> tuple[str, str]:
    """Whether a preset is worth serving ("yes", "no", "for memory", "open"), and the reason.

    By one rule, in this order: not realtime alone is a no; straying further than its limit is a
    no; faster than bf16 by 5 % is a yes; as fast with fewer bytes saves memory; slower is a no.
    """
    rate = float(result["figures"]["tokens_per_s"]["value"])
    if not is_realtime(result):
        return "no", f"{rate:.3g} tokens/s, realtime is {REALTIME_TOKENS_PER_S:.2f}"
    if fidelity is not None:
        check = fidelity["config"].get("limit_nats")
        stray = float(fidelity["figures"]["mean_kl_nats"]["value"])
        if check is not None and stray > float(check):
            return "no", f"strays by {stray:.3g} nats a token, the limit is {float(check):g}"
    if reference is result:
        return "yes", "realtime; the others are compared with it"
    if reference is None:
        return "open", "realtime; no bf16 was measured to compare with"
    times = rate / float(reference["figures"]["tokens_per_s"]["value"])
    share = _bytes(result) / _bytes(reference)
    compared = f"{times:.2f} times bf16's rate, {share:.0%} of its bytes"
    if times >= FASTER:
        return "yes", compared
    if times * FASTER < 1:
        return "no", compared
    return ("for memory" if share < 1 else "no"), compared


def _group(result: Mapping[str, Any]) -> tuple[Any, ...]:
    config = result["config"]
    device, streams = result["device"]["name"], config["measurement"]["streams"]
    return device, streams, config["weights"], config["shape"], _is_embedded(result)


def _place(result: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*_group(result), -_bytes(result), result["name"])


def _bytes(result: Mapping[str, Any]) -> float:
    return float(result["figures"]["bytes_per_step"]["value"])


def _is_embedded(result: Mapping[str, Any]) -> bool:
    return str(result["config"]["preset"]).startswith("embedded")


def _caveats(result: Mapping[str, Any]) -> str:
    streams = result["config"]["measurement"]["streams"]
    caveats = ["reduced"] * bool(result["reduced"])
    caveats += [f"{streams} streams"] * (streams > 1)
    return f" ({', '.join(caveats)})" if caveats else ""


def _number(figure: Mapping[str, Any]) -> str:
    value = float(figure["value"])
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
