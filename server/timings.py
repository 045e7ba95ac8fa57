"""An utterance's times as clients and the log get them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from server.speech import UtteranceReport


class Timings(TypedDict, total=False):
    """An utterance's times as clients get them: ms to a tenth, rtf to a thousandth."""

    ttfa_ms: float | None
    ttfs_ms: float | None
    total_ms: float | None
    rtf: float | None


def timings_of(report: UtteranceReport) -> Timings:
    """Timings of an utterance as clients get them."""
    return Timings(
        ttfa_ms=_rounded(report.ttfa_ms, 1),
        ttfs_ms=_rounded(report.ttfs_ms, 1),
        total_ms=_rounded(report.total_ms, 1),
        rtf=_rounded(report.rtf, 3),
    )


def ms_since(then_s: float) -> float:
    """Milliseconds since `then_s` on the monotonic clock, to a tenth."""
    return round((time.monotonic() - then_s) * 1_000, 1)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
