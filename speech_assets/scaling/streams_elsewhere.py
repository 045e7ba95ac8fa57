"""How many streams another GPU would hold, from the cost curve of one: a prediction.

    step to step elsewhere = kernels here x (bandwidth here / bandwidth there) + the rest here

Kernels of a decode step and of the codec mostly wait for memory, so they are taken to last as much
longer as the other GPU's memory is slower; its arithmetic is slower by less on the GPUs that the
page lists. The rest, what Python takes while no kernel runs, is taken to be the same, with the same
processor beside it. Memory for keys and values is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.step_times import STEP_BUDGET_S
from speech_assets.results.markdown import NONE_YET, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from speech_assets.scaling.assumptions import Assumptions

_BUDGET_MS = STEP_BUDGET_S * 1e3


def step_to_step_ms(row: Mapping[str, Any], slowdown: float) -> float:
    """Milliseconds from one step to the next where kernels take `slowdown` times as long."""
    kernels_ms = row["lm_ms"] + row["codec_ms"] - row["overlap_ms"]
    return kernels_ms * slowdown + max(0.0, row["interval_ms_mean"] - kernels_ms)


def streams_held(points: Iterable[tuple[int, float]], budget_ms: float = _BUDGET_MS) -> int:
    """Streams up to which a curve of (streams, step to step in ms) stays within the budget.

    Between two levels it is taken to be a line; at the last level it ends.
    """
    before: tuple[int, float] | None = None
    for streams, taken_ms in sorted(points):
        if taken_ms > budget_ms:
            if before is None:
                return 0
            share = (budget_ms - before[1]) / (taken_ms - before[1])
            return int(before[0] + share * (streams - before[0]))
        before = (streams, taken_ms)
    return 0 if before is None else before[0]


def elsewhere_table(results: Sequence[Mapping[str, Any]], assumptions: Assumptions) -> str:
    """Streams on each GPU of the assumptions, by each cost curve with a trace."""
    lines: list[Sequence[str]] = []
    for result in results:
        rows = [row for row in result["rows"] if row.get("lm_ms") is not None]
        here = assumptions.device_of(result["device"]["name"])
        if not rows or here is None:
            continue
        least, most = rows[0], rows[-1]
        for there in assumptions.devices:
            slowdown = here.bandwidth_gb_per_s / there.bandwidth_gb_per_s
            held = streams_held((r["streams"], step_to_step_ms(r, slowdown)) for r in rows)
            at_least = "at least " if held == most["streams"] else ""
            lines.append(
                (
                    result["name"],
                    result["device"]["name"],
                    there.name,
                    f"{slowdown:.3g}",
                    f"{step_to_step_ms(least, slowdown):.3g} ({least['streams']})",
                    f"{at_least}{held}",
                )
            )
    heads = (
        "preset", "measured on", "predicted for", "its kernels take, times",
        "step to step, ms (streams)", "streams within a token's time",
    )  # fmt: skip
    return table(heads, lines) if lines else NONE_YET
