"""Amounts as a reader meets them: three digits that count, shares as percent, the unit behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.results.markdown import number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_NO_UNIT = ("", "ratio")


def is_share(name: str, unit: str) -> bool:
    """Whether the figure is a part of a whole, which is read in percent.

    By its unit; figures of an earlier form have none, and are called so.
    """
    return unit == "share" or (unit in _NO_UNIT and name.endswith("_share"))


def shown_unit(name: str, unit: str) -> str:
    """The unit that its numbers are shown in; empty for what has none."""
    return "%" if is_share(name, unit) else "" if unit in _NO_UNIT else unit


def shown_number(name: str, value: float, unit: str) -> str:
    """The number in the unit that `shown_unit` says."""
    return number(100 * value if is_share(name, unit) else value)


def amount(name: str, value: float, unit: str) -> str:
    """The number with its unit: "21.4 %", "312 ms", "0.62"."""
    return f"{shown_number(name, value, unit)} {shown_unit(name, unit)}".rstrip()


def interval(name: str, figure: Mapping[str, Any]) -> str:
    """Both ends of a figure's interval, "18.1 to 24.9"; empty where it has none."""
    ends, unit = (figure.get("ci_low"), figure.get("ci_high")), str(figure["unit"])
    if None in ends:
        return ""
    return " to ".join(shown_number(name, float(end), unit) for end in ends if end is not None)
