"""Numbers of the scaling page as text."""

from __future__ import annotations

NONE = "-"
NOT_POSSIBLE = "not possible"


def count(value: int) -> str:
    """A whole number, its thousands apart."""
    return f"{value:,}"


def rounded(value: float) -> str:
    """Three digits, without an exponent up to a million million."""
    if value == 0:
        return "0"
    if abs(value) >= 1e12:
        return f"{value:.3g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.2e}"


def gb(size_bytes: float) -> str:
    """Bytes as GB, 1e9 each."""
    return rounded(size_bytes / 1e9)


def tb(size_bytes: float) -> str:
    """Bytes as TB, 1e12 each."""
    return rounded(size_bytes / 1e12)
