"""How long the demo took: a result of its own, so that what is said of it is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.results.markdown import table
from speech_assets.results.provenance import cpu_device
from speech_assets.results.result import Figure, Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from resources.store import Store

KIND = "demo"
MADE = ("tokens", "checkpoints", "samples")
"""What a demo makes: where any of it is there before, a demo is not timed."""


def is_new(store: Store) -> bool:
    """Whether nothing of a demo is in the store yet."""
    return not any(store.keys(prefix) for prefix in MADE)


def demo_result(
    name: str, started_at: str, steps: Sequence[tuple[str, float]], *, full: bool
) -> Result:
    """The result of a demo of the profile `name`; of each step its title and seconds."""
    return Result(
        kind=KIND,
        name=f"{name}-full" if full else name,
        started_at=started_at,
        device=cpu_device(),
        command="make demo-full" if full else "make demo",
        config={"profile": name, "full": full},
        rows=[{"step": title, "seconds": seconds} for title, seconds in steps],
        figures={"total_s": Figure(sum(seconds for _, seconds in steps), "s", len(steps))},
    )


def demo_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Each demo in minutes, with what took longest."""
    heads = ("command", "device", "cores", "steps", "minutes", "of which longest", "date")
    rows: list[Sequence[str]] = []
    for result in results:
        longest = max(result["rows"], key=lambda row: row["seconds"])
        cells = (
            f"`{result['command']}`",
            str(result["device"]["name"]),
            str(result["device"]["cores"]),
            str(len(result["rows"])),
            f"{result['figures']['total_s']['value'] / 60:.1f}",
            f"{longest['step']}, {longest['seconds'] / 60:.1f}",
            result["started_at"][:10],
        )
        rows.append(cells)
    return table(heads, rows)
