"""`python -m speech_assets.scaling`: devices for your streams, at your price.

Of each published load test: how many devices N streams at once need and what an hour of a stream
costs. Arithmetic on measured figures; prices and utilisation are yours.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from speech_assets.errors import ConfigError
from speech_assets.results import published
from speech_assets.scaling.assumptions_file import TABLE, load_assumptions
from speech_assets.scaling.cost import breakeven_utilisation
from speech_assets.scaling.fleet import Capacity, capacities, capacities_of_others, devices_for
from speech_assets.scaling.numbers import NONE, rounded
from speech_assets.scaling.serving_tables import (
    UTILISATIONS,
    breakeven_cell,
    cost_cell,
    devices_cell,
    notes,
    streams_cell,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_STREAMS = 10**9


class _Parser(argparse.ArgumentParser):
    """One that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; --help says what there is")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; 0 done, 2 a value cannot work."""
    parser = _Parser(
        prog="python -m speech_assets.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--price-per-hour", required=True, metavar="P", help="of one device")
    parser.add_argument(
        "--utilisation", default="1", metavar="U", help="share of the streams in use, 0 to 1"
    )
    parser.add_argument("--streams", required=True, metavar="N", help="at once, at the peak")
    parser.add_argument(
        "--streams-per-device", metavar="N", help="your own, instead of published ones"
    )
    parser.add_argument(
        "--bought-per-stream-hour", metavar="P", help="what an hour of a stream costs elsewhere"
    )
    parser.add_argument(
        "--assumptions", type=Path, default=TABLE, metavar="FILE", help="what others published"
    )
    try:
        given = parser.parse_args(argv)
        print(
            _answer(
                price=_number("--price-per-hour", given.price_per_hour),
                utilisation=_share("--utilisation", given.utilisation),
                streams=_streams("--streams", given.streams),
                per_device=_optional_streams(given.streams_per_device),
                bought=_optional_price(given.bought_per_stream_hour),
                assumptions=given.assumptions,
            )
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _answer(
    *,
    price: float,
    utilisation: float,
    streams: int,
    per_device: int | None,
    bought: float | None,
    assumptions: Path,
) -> str:
    others: list[Capacity] = []
    if per_device is not None:
        found = [Capacity("yours", "yours", None, per_device, None)]
    else:
        found = capacities(published.of_kind("load_tests"))
        others = capacities_of_others(load_assumptions(assumptions).streams_by_others)
    parts = [
        f"{streams:,} streams at once, {price:g} a device-hour, {utilisation:.3g} of the streams"
        " in use. Prices are inputs; the rest is arithmetic, no measurement.",
        _plain(found, price, utilisation, streams, bought)
        or "No load test is published (results/load_tests).",
        *(note.replace("*", "") for note in notes(found)),
    ]
    if others:
        parts += [
            "Published by others, not measured here, each at the price above:",
            _plain(others, price, utilisation, streams, bought),
        ]
    if bought is not None:
        parts.append(_breakeven([*found, *others], price, bought))
    return "\n\n".join(parts)


def _plain(
    found: Sequence[Capacity],
    price: float,
    utilisation: float,
    streams: int,
    bought: float | None,
) -> str:
    if not found:
        return ""
    heads = ["preset", "device", "load", "a device", "devices", "with margin"]
    heads += ["fleet/h", "stream-hour", "with margin"]
    heads += ["breaks even at"] * (bought is not None)
    rows = [
        [
            one.name + (f" ({', '.join(one.caveats)})" if one.caveats else ""),
            one.device,
            one.load or NONE,
            streams_cell(one),
            devices_cell(one, streams, one.streams),
            devices_cell(one, streams, one.with_margin),
            _fleet(one, streams, price),
            cost_cell(one, price, one.streams, utilisation),
            cost_cell(one, price, one.with_margin, utilisation),
            *([] if bought is None else [breakeven_cell(one, price, bought)]),
        ]
        for one in found
    ]
    return _columns(heads, rows)


def _breakeven(found: Sequence[Capacity], price: float, bought: float) -> str:
    """For some utilisations, whether own devices are cheaper than what is bought."""
    heads = ["own devices are cheaper at", *(f"{share:.0%}" for share in UTILISATIONS)]
    rows: list[list[str]] = []
    for one in found:
        if not one.streams:
            continue
        least = breakeven_utilisation(price, one.streams, bought)
        otherwise = "open" if one.is_at_least else "no"
        name = f"{one.name}, {one.device}" + (f", {one.load}" if one.load else "")
        rows.append([name, *("yes" if share >= least else otherwise for share in UTILISATIONS)])
    return _columns(heads, rows)


def _fleet(one: Capacity, streams: int, price: float) -> str:
    devices = devices_for(streams, one.streams)
    if devices is None:
        return NONE
    return ("at most " if one.is_at_least else "") + rounded(devices * price)


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *rows)
    )


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ConfigError(f"{name} {text!r} is no number; give one above 0, as 2.5") from error
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} {text} cannot work; give a number above 0, as 2.5")
    return value


def _share(name: str, text: str) -> float:
    value = _number(name, text)
    if value > 1:
        raise ConfigError(f"{name} {text} is no share; give a number above 0 and at most 1, as 0.6")
    return value


def _streams(name: str, text: str) -> int:
    value = _number(name, text)
    if value != int(value) or value > MOST_STREAMS:
        raise ConfigError(
            f"{name} {text} is no number of streams; give a whole number, 1 to {MOST_STREAMS:,}"
        )
    return int(value)


def _optional_streams(text: str | None) -> int | None:
    return None if text is None else _streams("--streams-per-device", text)


def _optional_price(text: str | None) -> float | None:
    return None if text is None else _number("--bought-per-stream-hour", text)


if __name__ == "__main__":
    sys.exit(main())
