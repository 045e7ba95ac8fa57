"""Tables of tokenizing a corpus: how large it gets, how long it takes, what it takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from speech_assets.results.markdown import commands, number, rounds_cell, table
from speech_assets.scaling.dataset import dataset_size, device_hours
from speech_assets.scaling.numbers import NONE, count, rounded, tb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.scaling.assumptions import Assumptions
    from speech_assets.scaling.dataset import DatasetSize


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


def tokenize_fleet_table(
    results: Sequence[Mapping[str, Any]],
    assumptions: Assumptions,
    pipelines: Sequence[Mapping[str, Any]] = (),
) -> str:
    """What the corpus takes in `tokenize_days`, by each published backfill on a GPU: a prediction.

    Devices at the rate of the whole loop; cores for `speech` at the rate a core of the host that
    was measured; the store's reading and writing is of PCM and codes, archives left out. Devices
    whose hosts make the speech, too, go at the rate of the whole pipeline, where `pipelines` have
    one of that device and codec: the newest, with its date.
    """
    newest = {
        (each["device"]["name"], each["config"]["codec"]): each
        for each in sorted(pipelines, key=lambda each: str(each["started_at"]))
    }
    values = assumptions.values
    size, days = corpus_size(assumptions), values.tokenize_days.value
    hours = days * 24
    heads = (
        "device", "codec", "devices", "cores for `speech`",
        "devices, each with its host's cores alone", "`speech` written, MB/s",
        "`speech` read, MB/s", "`tokens` written, MB/s", "shards an hour", "date",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for result in results:
        figures, host = result["figures"], result["device"].get("host", {})
        # Processes that made speech, where the result says how many; of the host's cores at most.
        cores = result["config"].get("decoding_processes", host.get("cores"))
        if "speech_capacity_hours_per_min" not in figures or not host or not cores:
            continue
        loop = device_hours(size.hours, float(figures["hours_per_min"]["value"]))
        speech = float(figures["speech_capacity_hours_per_min"]["value"]) / cores
        whole = newest.get((result["device"]["name"], result["config"]["codec"]))
        pcm_mb_per_s = size.pcm_bytes / 1e6 / (hours * 3_600)
        cells = (
            result["device"]["name"] + " (reduced)" * bool(result["reduced"]),
            result["config"]["codec"],
            count(math.ceil(loop / hours)),
            count(math.ceil(device_hours(size.hours, speech) / hours)),
            NONE if whole is None else _whole_cell(whole, size.hours, hours),
            rounded(pcm_mb_per_s),
            rounded(pcm_mb_per_s),
            rounded(size.code_bytes / 1e6 / (hours * 3_600)),
            rounded(size.shards / hours),
            result["started_at"][:10],
        )
        rows.append(cells)
    return table(heads, rows)


def _whole_cell(pipeline: Mapping[str, Any], corpus_hours: float, hours: float) -> str:
    """Devices at the rate of a whole pipeline, with the date of its result."""
    rate = float(pipeline["figures"]["pipeline_hours_per_min"]["value"])
    devices = math.ceil(device_hours(corpus_hours, rate) / hours)
    return f"{count(devices)} ({pipeline['started_at'][:10]})"


def curve_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Speed of the bare encoder and of making speech against what it depends on: measured.

    Below it the command of each result. Earlier results have no memory of each row.
    """
    heads = (
        "device", "codec", "what", "varied", "value", "h/min (measured)", "rounds, s each",
        "peak memory, GiB", "date",
    )  # fmt: skip
    named = {
        "clip_s": ("bare encoder", "clips of so many s"),
        "batch_samples": ("bare encoder, clips of 5 s", "samples of a batch at most"),
        "cores": ("`speech`", "cores of the host"),
    }
    rows: list[Sequence[str]] = []
    for result in results:
        for row in result["rows"]:
            what, varied = named[row["varied"]]
            cells = (
                result["device"]["name"] + " (reduced)" * bool(result["reduced"]),
                result["config"]["codec"],
                what,
                varied,
                _value(row[row["varied"]]),
                number(row["hours_per_min"]),
                rounds_cell(row["seconds"]),
                f"{row['peak_memory_gib']:.2f}" if "peak_memory_gib" in row else NONE,
                result["started_at"][:10],
            )
            rows.append(cells)
    return "\n".join([table(heads, rows), *commands(results)])


def _value(value: float) -> str:
    return count(int(value)) if float(value).is_integer() else f"{value:g}"
