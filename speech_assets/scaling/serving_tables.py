"""Tables of devices for streams, and of what streams cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.results.markdown import table
from speech_assets.scaling.cost import (
    breakeven_price,
    breakeven_utilisation,
    cost_per_stream_hour,
)
from speech_assets.scaling.fleet import devices_for, says_nothing_of_orpheus
from speech_assets.scaling.numbers import NONE, NOT_POSSIBLE, count, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.scaling.assumptions import Assumptions
    from speech_assets.scaling.fleet import Capacity

EMBEDDED_NOTE = (
    "Presets called embedded are of the small voice that ships with the project: they show how the "
    "table is made and **say nothing of Orpheus 3B**."
)
AT_LEAST_NOTE = (
    "*At least*: no level that was offered failed, so one device may hold more, and *at most* so "
    "many devices are needed."
)
UTILISATIONS = (0.25, 0.5, 0.75, 1.0)
NONE_NOTE = "*Not possible*: the device held no stream, or none with a level of margin."


def streams_table(found: Sequence[Capacity], streams: Sequence[int]) -> str:
    """Devices for each number of streams, as measured and with one level of margin."""
    heads = ["preset", "device", "load", "streams a device (measured)", "one level less"]
    for number in streams:
        heads += [f"devices for {number:,}", "with margin"]
    rows = [
        [
            _named(one),
            one.device,
            one.load or "",
            streams_cell(one),
            NONE if one.with_margin is None else count(one.with_margin),
            *(cell for number in streams for cell in _pair(one, number)),
        ]
        for one in found
    ]
    return "\n\n".join([table(heads, rows), *notes(found)])


def others_streams_table(found: Sequence[Capacity], assumptions: Assumptions) -> str:
    """The same for what others published, with their rule and source."""
    heads = ["published by others", "device", "streams a device", "one level less"]
    for number in assumptions.streams:
        heads += [f"devices for {number:,}", "with margin"]
    heads += ["their rule", "source", "read on"]
    rows = [
        [
            one.name,
            one.device,
            count(one.streams),
            NONE if one.with_margin is None else count(one.with_margin),
            *(cell for number in assumptions.streams for cell in _pair(one, number)),
            row.rule,
            row.source,
            row.date,
        ]
        for one, row in zip(found, assumptions.streams_by_others, strict=True)
    ]
    return table(heads, rows)


def cost_table(found: Sequence[Capacity], assumptions: Assumptions) -> str:
    """What an hour of a stream costs at the prices assumed."""
    utilisation = assumptions.values.utilisation.value
    heads = (
        "preset, or who published it", "device", "load", "streams a device",
        "price of a device-hour (input)", "a stream-hour, all streams in use",
        f"at {utilisation:.0%} (input)", f"with margin, at {utilisation:.0%}",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for one in found:
        price = assumptions.price_of(one.device)
        if price is None:
            rows.append((*_head(one), "no price given", *[NONE] * 3))
            continue
        rows.append(
            (
                *_head(one),
                f"{price.per_hour:g}",
                cost_cell(one, price.per_hour, one.streams, 1.0),
                cost_cell(one, price.per_hour, one.streams, utilisation),
                cost_cell(one, price.per_hour, one.with_margin, utilisation),
            )
        )
    return "\n\n".join([table(heads, rows), *embedded_notes(found)])


def breakeven_table(found: Sequence[Capacity], assumptions: Assumptions) -> str:
    """Where own devices and bought stream-hours cost the same, at the prices assumed."""
    bought = assumptions.values.bought_per_stream_hour.value
    heads = (
        "preset, or who published it", "device", "load", "streams a device",
        "price of a device-hour (input)", "breaks even from a utilisation of",
        *(f"from a price below, at {share:.0%} in use" for share in UTILISATIONS),
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for one in found:
        price = assumptions.price_of(one.device)
        rows.append(
            (
                *_head(one),
                f"{price.per_hour:g}" if price else NONE,
                breakeven_cell(one, price.per_hour, bought) if price else NONE,
                *(
                    ("at least " if one.is_at_least else "")
                    + rounded(breakeven_price(one.streams, share, bought))
                    if one.streams
                    else NOT_POSSIBLE
                    for share in UTILISATIONS
                ),
            )
        )
    return "\n\n".join([table(heads, rows), *embedded_notes(found)])


def notes(found: Sequence[Capacity]) -> list[str]:
    """What a reader of rows of streams must be told."""
    said = embedded_notes(found)
    said += [AT_LEAST_NOTE] * any(one.is_at_least and one.streams for one in found)
    return said + [NONE_NOTE] * any(0 in (one.streams, one.with_margin) for one in found)


def embedded_notes(found: Sequence[Capacity]) -> list[str]:
    """The note on the embedded voice, where a row is of it."""
    return [EMBEDDED_NOTE] * any(says_nothing_of_orpheus(one.name) for one in found)


def streams_cell(one: Capacity) -> str:
    """Streams that a device holds."""
    if not one.streams:
        return "0" if one.lowest_level == 1 else f"fewer than {one.lowest_level:,}"
    return ("at least " if one.is_at_least else "") + count(one.streams)


def devices_cell(one: Capacity, streams: int, per_device: int | None) -> str:
    """Devices for `streams`."""
    if per_device is None:
        return NONE
    devices = devices_for(streams, per_device)
    if devices is None:
        return NOT_POSSIBLE
    return ("at most " if one.is_at_least else "") + count(devices)


def cost_cell(one: Capacity, price: float, streams: int | None, utilisation: float) -> str:
    """Cost of a stream-hour."""
    if streams is None:
        return NONE
    if not streams:
        return NOT_POSSIBLE
    cost = rounded(cost_per_stream_hour(price, streams, utilisation))
    return ("at most " if one.is_at_least else "") + cost


def breakeven_cell(one: Capacity, price: float, bought: float) -> str:
    """Utilisation from which own devices are cheaper than bought stream-hours."""
    if not one.streams:
        return NOT_POSSIBLE
    share = breakeven_utilisation(price, one.streams, bought)
    if share > 1:
        return "no utilisation" + " so far" * one.is_at_least
    return ("at most " if one.is_at_least else "") + f"{share:.1%}"


def _pair(one: Capacity, streams: int) -> tuple[str, str]:
    return (
        devices_cell(one, streams, one.streams),
        devices_cell(one, streams, one.with_margin),
    )


def _head(one: Capacity) -> tuple[str, str, str, str]:
    return _named(one), one.device, one.load or NONE, streams_cell(one)


def _named(one: Capacity) -> str:
    return one.name + (f" ({', '.join(one.caveats)})" if one.caveats else "")
