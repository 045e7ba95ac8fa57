"""What a result says in one sentence, and what of it was shortened, for whoever looks first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.ab.verdict import summary
from speech_assets.codec_forms.figures import FULL_CALLS, FULL_CLIPS
from speech_assets.load.ladder import FULL_STEP_S
from speech_assets.load.sweep import FULL_LEVEL_S
from speech_assets.quality.noise import DECIDING, word_of
from speech_assets.quality.sentences import QUALITY_SENTENCES, SEEDS
from speech_assets.quantize.calibration import MAX_TOKENS
from speech_assets.quantize.calibration_texts import HELD_OUT_TEXTS
from speech_assets.results.markdown import number
from speech_assets.work.decode_measurement import FULL_RUNS, FULL_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Result = Mapping[str, Any]
    Extent = tuple[float | None, float, str]
    """How much there was, how much a whole run has, and of what."""

_UNSAID = "less than a whole run"


def finding(result: Result) -> str:
    """What the result says, in one sentence; "" for a kind that has none.

    What keeps it from being the last word stands behind: that it does not count, or is reduced.
    """
    said = _SAYS.get(result["kind"])
    words = [said(result)] if said else []
    if result["status"] != "complete":
        faults = result["config"].get("faults") or result["config"].get("client_faults") or ()
        why = f": {', '.join(faults)}" if faults else ""
        words.append(f"{result['status']}, it does not count{why}")
    words += [f"reduced: {short}"] if (short := shortened(result)) else []
    return "; ".join(words)


def shortened(result: Result) -> str:
    """What was less than in a whole run, as "4 of 32 generations"; "" where nothing was."""
    if not result["reduced"]:
        return ""
    extents = _EXTENTS[result["kind"]](result) if result["kind"] in _EXTENTS else []
    less = [f"{had:g} of {whole:g} {what}" for had, whole, what in extents if had and had < whole]
    return ", ".join(less) or _UNSAID


def _fidelity(result: Result) -> str:
    kl, limit = result["figures"]["mean_kl_nats"], result["config"]["limit_nats"]
    verdict = "within" if kl["value"] <= limit else "ABOVE"
    return (
        f"mean KL {kl['value']:.2g} nats ({_interval(kl)}{kl['n']} tokens of "
        f"{result['config']['generations']} generations), {verdict} the limit of {limit:g}"
    )


def _decode_speed(result: Result) -> str:
    figures = result["figures"]
    rate, ms = figures["tokens_per_s"], figures["ms_per_token_p50"]["value"]
    return (
        f"{number(ms)} ms a token, {rate['value']:.4g} tokens/s ({_interval(rate)}realtime is "
        f"{REALTIME_TOKENS_PER_S:.2f}), {figures['floor_share']['value']:.0%} of the bandwidth "
        "floor"
    )


def _codec_checkpoint(result: Result) -> str:
    figures = result["figures"]
    error = figures.get("relative_error_db")
    differs = f"error {error['value']:.1f} dB" if error else "no difference"
    flagged = int(figures["flagged_clips"]["value"])
    return (
        f"{differs} beside the whole codec in float32, {flagged} of {len(result['rows'])} clips "
        f"unhealthy; its file has {figures['file_bytes']['value'] / 2**20:.3g} MiB"
    )


def _load_tests(result: Result) -> str:
    streams = {
        load: figure["value"]
        for load in ("generating", "listening")
        if (figure := result["figures"].get(f"max_realtime_streams_{load}"))
    }
    least = {
        load: "at least " * (load in result["config"].get("no_level_failed", ()))
        for load in streams
    }
    said = [f"{least[load]}{count:g} {load}" for load, count in streams.items()]
    return f"streams in realtime: {', '.join(said) or 'not measured'}"


def _ladder(result: Result) -> str:
    figures = result["figures"]
    return (
        f"streams in realtime: {figures['max_realtime_streams_generating']['value']:g} after "
        f"{figures['steps']['value']:g} steps, "
        f"{figures['baseline_max_realtime_streams_generating']['value']:g} before"
    )


def _wer(result: Result) -> str:
    wer, base = result["figures"]["wer"], result["config"]["base"]
    between = ""
    if wer.get("ci_low") is not None and wer.get("ci_high") is not None:
        between = f"{100 * wer['ci_low']:.1f} to {100 * wer['ci_high']:.1f}, "
    said = f"WER {100 * wer['value']:.1f} % ({between}n = {wer['n']})"
    if base == result["name"]:
        return f"{said}; what others are compared with"
    less = result["figures"].get(f"{DECIDING}_less_base")
    if less is None:
        return f"{said}; not compared with {base}, which has no clips of these"
    points = 100 * less["value"]
    side = f"{abs(points):.1f} points {'above' if points > 0 else 'below'}"
    side = side if f"{abs(points):.1f}" != "0.0" else "as high as"
    return f"{said}; format-insensitive {side} {base}, {word_of(less)}"


def _ab(result: Result) -> str:
    config, n = result["config"], len(result["rows"])
    return (
        f"B ({config['b']['label']}) beside A ({config['a']['label']}), n = {n} clips each: "
        f"{summary(result)}"
    )


def _interval(figure: Mapping[str, Any]) -> str:
    if figure.get("ci_low") is None or figure.get("ci_high") is None:
        return ""
    return f"{number(figure['ci_low'])} to {number(figure['ci_high'])}, "


def _sweep(result: Result, whole_s: float) -> list[Extent]:
    return [(result["config"].get("sweep", {}).get("duration_s"), whole_s, "s a level")]


def _of_fidelity(result: Result) -> list[Extent]:
    config = result["config"]
    longest = config.get("sampling", {}).get("max_tokens")
    return [
        (config.get("generations"), len(HELD_OUT_TEXTS), "generations"),
        (longest, MAX_TOKENS, "tokens that each may have"),
    ]


def _of_speed(result: Result) -> list[Extent]:
    measurement = result["config"].get("measurement", {})
    return [
        (measurement.get("runs"), FULL_RUNS, "runs"),
        (measurement.get("steps"), FULL_STEPS, "tokens a run"),
    ]


def _of_codec(result: Result) -> list[Extent]:
    config = result["config"]
    return [
        (config.get("clips"), FULL_CLIPS, "clips"),
        (config.get("calls"), FULL_CALLS, "timed calls"),
    ]


def _of_wer(result: Result) -> list[Extent]:
    return _of_sentences(result["config"].get("sentences"), result)


def _of_ab(result: Result) -> list[Extent]:
    return _of_sentences(result["figures"].get("sentences", {}).get("value"), result)


def _of_sentences(count: float | None, result: Result) -> list[Extent]:
    return [
        (count, len(QUALITY_SENTENCES), "sentences"),
        (len(result["seeds"]), len(SEEDS), "seeds"),
    ]


_SAYS: dict[str, Callable[[Result], str]] = {
    "fidelity": _fidelity,
    "decode_speed": _decode_speed,
    "codec_checkpoint": _codec_checkpoint,
    "load_tests": _load_tests,
    "ladder": _ladder,
    "wer": _wer,
    "ab": _ab,
}
_EXTENTS: dict[str, Callable[[Result], list[Extent]]] = {
    "fidelity": _of_fidelity,
    "decode_speed": _of_speed,
    "codec_checkpoint": _of_codec,
    "load_tests": lambda result: _sweep(result, FULL_LEVEL_S),
    "ladder": lambda result: _sweep(result, FULL_STEP_S),
    "wer": _of_wer,
    "ab": _of_ab,
}
