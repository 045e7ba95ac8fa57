"""Tables of devices for streams, of what streams cost, and of tokenizing a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speech_assets.results.markdown import table
from speech_assets.scaling.cost import (
    breakeven_price,
    breakeven_utilisation,
    cost_per_stream_hour,
)
from speech_assets.scaling.dataset import dataset_size, device_hours
from speech_assets.scaling.fleet import devices_for, says_nothing_of_orpheus
from speech_assets.scaling.numbers import NONE, NOT_POSSIBLE, count, rounded, tb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.scaling.assumptions import Assumptions
    from speech_assets.scaling.dataset import DatasetSize
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


def corpus_size(assumptions: Assumptions) -> DatasetSize:
    """The corpus of the assumptions in clips, tokens and shards."""
    values = assumptions.values
    mean_clip_s = values.example_hours.value * 3_600 / values.example_clips.value
    return dataset_size(values.corpus_hours.value, mean_clip_s, values.padding_frames.value)


def dataset_table(assumptions: Assumptions) -> str:
    """The corpus in numbers, each with its formula: arithmetic on assumptions."""
    size = corpus_size(assumptions)
    values = assumptions.values
    rows = [
        ("audio, h", rounded(size.hours), "input"),
        (
            "mean clip, s",
            f"{values.example_hours.value * 3_600 / values.example_clips.value:.2f}",
            "3,600 x example_hours / example_clips",
        ),
        ("clips", f"{size.clips:.4g}", "3,600 x hours / mean clip"),
        (
            "tokens",
            f"{size.tokens:.4g}",
            "hours x 3,600 x 24,000 / 2,048 x 7 + clips x padding_frames x 7",
        ),
        ("tokens of an hour", count(round(size.tokens / size.hours)), "tokens / hours"),
        ("shards", count(size.shards), "clips / 1,000, rounded up"),
        ("codes in `tokens`, TB", tb(size.code_bytes), "2 bytes a token, before compression"),
        (
            "codes at 12 bits, TB",
            tb(size.least_code_bytes),
            "1.5 bytes a token: what compression can reach where all codes are equally likely",
        ),
        ("PCM in `speech`, TB", tb(size.pcm_bytes), "24,000 x 2 bytes a second, not compressed"),
    ]
    return table(("corpus (arithmetic)", "value", "formula"), rows)


def tokenize_hours_table(results: Sequence[Mapping[str, Any]], assumptions: Assumptions) -> str:
    """Device-hours for the corpus at each published rate, ours and others'."""
    hours = assumptions.values.corpus_hours.value
    devices = assumptions.values.tokenize_devices.value
    heads = (
        "device", "codec", "backfill, h/min (measured)", "device-hours (prediction)",
        f"days on {devices:g} devices", "bare encoder, h/min (measured)",
        "device-hours (prediction)", "date",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in results:
        rate = float(result["figures"]["hours_per_min"]["value"])
        encoder = float(result["figures"]["encoder_hours_per_min"]["value"])
        cells = (
            result["device"]["name"] + " (reduced)" * bool(result["reduced"]),
            result["config"]["codec"],
            rounded(rate),
            rounded(device_hours(hours, rate)),
            rounded(device_hours(hours, rate) / devices / 24),
            rounded(encoder),
            rounded(device_hours(hours, encoder)),
            result["started_at"][:10],
        )
        rows.append(cells)
    for other in assumptions.tokenize_by_others:
        spent = device_hours(hours, other.hours_per_min)
        rows.append(
            (
                other.device,
                f"published by others, {other.who} ({other.source})",
                rounded(other.hours_per_min),
                rounded(spent),
                rounded(spent / devices / 24),
                NONE,
                NONE,
                other.date,
            )
        )
    return table(heads, rows)


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
