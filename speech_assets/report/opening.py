"""What stands at the top of the page: what to do next, and what to know before any figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speech_assets.report.evidence import UNKNOWN
from speech_assets.results.markdown import EMBEDDED, INVALID_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.report.evidence import Evidence, Found
    from speech_assets.report.section import Place

HEARD = ("wer", "ab", "codec_checkpoint")
"""Kinds of results whose rows are clips."""


@dataclass(frozen=True, slots=True)
class Named:
    """A result that a banner is about: its id, where it is shown (None: nowhere), and why it is."""

    id: str
    place: Place | None
    why: str


@dataclass(frozen=True, slots=True)
class Banner:
    """A line before all figures, prose of the project's own, and the results that it is about."""

    text: str
    results: tuple[Named, ...] = ()


def banners(evidence: Evidence, places: Mapping[str, Place]) -> tuple[Banner, ...]:
    """What must be known before any figure is read. `places` are where results are shown, by id."""
    found = evidence.results
    of_all = f"of {len(found)} result{'s' * (len(found) != 1)}."

    def named(results: Sequence[Found], whys: Sequence[str]) -> tuple[Named, ...]:
        return tuple(Named(r.id, places.get(r.id), w) for r, w in zip(results, whys, strict=True))

    lines = [Banner(EMBEDDED)] * evidence.is_embedded
    if not found:
        lines.append(Banner("There is no result in the store: nothing was measured yet."))
    if invalid := [f for f in found if not f.is_valid]:
        lines.append(
            Banner(
                "Not valid by their own rules; their figures prove nothing, and are marked "
                f"{INVALID_MARK}: {len(invalid)} {of_all}",
                named(invalid, [f.faults or "it does not say why" for f in invalid]),
            )
        )
    if reduced := [f for f in found if f.value["reduced"]]:
        lines.append(
            Banner(
                f"Of reduced runs, too short to be quoted: {len(reduced)} {of_all}",
                named(reduced, list(map(_how_short, reduced))),
            )
        )
    if late := [f for f in found if f.is_valid and f.value["config"].get("client_faults")]:
        lines.append(
            Banner(
                "The client was late itself (a busy machine), so that times are partly its own: "
                f"{len(late)} {of_all}",
                named(late, [f.faults for f in late]),
            )
        )
    if random := [f for f in found if f.value["config"].get("weights") == "random"]:
        lines.append(
            Banner(
                "Of random weights of the true shape, which tell speed and nothing of speech: "
                f"{len(random)} {of_all}",
                named(random, ["random weights"] * len(random)),
            )
        )
    if others := [f for f in found if f.device != evidence.device]:
        lines.append(
            Banner(
                f"Of another device than {evidence.device}, not to be compared with figures of "
                f"that: {len(others)} {of_all}",
                named(others, [f"on {f.device}" for f in others]),
            )
        )
    unlike = [
        f
        for f in found
        if f.commit != evidence.commit or f.commit == UNKNOWN or f.value["git"].get("dirty")
    ]
    if unlike:
        lines.append(
            Banner(
                f"Not of one known commit of the project without changes: {len(unlike)} {of_all}",
                named(unlike, list(map(_of_code, unlike))),
            )
        )
    if evidence.unreadable:
        n = len(evidence.unreadable)
        lines.append(
            Banner(
                f"{n} file{'s' * (n != 1)} could not be read and were passed over: see "
                "[Sources](#sources)."
            )
        )
    return tuple(lines)


def next_steps(evidence: Evidence, *, is_all_measured: bool) -> tuple[str, ...]:
    """What a reader does with the page, first things first."""
    found = evidence.results
    if not found:
        return (
            "Measure something: `make demo` runs the whole lineage in a reduced form and writes "
            "this page again.",
        )
    steps = ["Read the [headline](#headline): each preset in one line."]
    if evidence.samples:
        steps.append("Hear it: [Listening](#listening) has the same sentences of every preset.")
    if not all(f.is_valid for f in found):
        steps.append(
            "Measure again what is not valid, on a quiet machine: the commands are under "
            "[How to make it again](#again)."
        )
    if any(f.value["reduced"] for f in found):
        steps.append(
            "Before you quote or decide by a figure of a reduced run, measure at full length: "
            "materialize its asset with the usual settings in `make ui`."
        )
    if not is_all_measured:
        steps.append("[Not measured](#not-measured) lists what is missing, each with its command.")
    return tuple(steps)


def _how_short(found: Found) -> str:
    """How much the run measured, of which a whole one measures more."""
    config, n = found.value["config"], len(found.value["rows"])
    kind = str(found.value["kind"])
    if "sweep" in config:
        return f"{config['sweep'].get('duration_s', 0):g} s a level"
    if measurement := config.get("measurement"):
        return f"{measurement.get('runs')} runs of {measurement.get('steps')} tokens"
    if kind in HEARD:
        return f"{n} clips"
    if kind == "fidelity":
        return f"{n} generations"
    return "a shorter run"


def _of_code(found: Found) -> str:
    changed = ", with changes that were not committed" * bool(found.value["git"].get("dirty"))
    return f"commit {found.commit}{changed}"
