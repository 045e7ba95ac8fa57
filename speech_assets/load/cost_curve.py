"""What so many streams cost: a level's rounds, threads, memory and device, without HTTP or clients.

A round is a step of the engine and what its thread does beside it. Where the time from one step to
the next is longer than a token lasts (12.19 ms), streams fall behind their players.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from server.frames import SAMPLE_RATE_HZ
from speech_assets.bench.figures import LEAST_FOR
from speech_assets.bench.percentile import nearest_rank
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from server.speech import UtteranceReport

KIND = "cost_curve"
_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class LevelCost:
    """What was measured while `streams` were generated, for `window_s`.

    Attributes:
        steps_s: each step of the engine, as its thread waited for it.
        busy_s: of the engine's thread, steps and what it does beside them in a round; new prompts
            and the hand-over of audio are not in it.
        decodes_s: each call of the codec, from its start to its audio.
        decode_rows: rows of those calls.
        samples: of 24 kHz that were handed over.
        late_chunks: chunks that came after a player without buffer had run dry.
        reports: utterances that ended in the window.
        thread_cores: CPU time over wall time, of the engine's thread, the event loop, and the rest
            of the process.
        waited_share: of the window, that the engine's thread could run and had no core.
        host_memory_bytes: resident; device_memory_bytes: in use on a GPU, by whatever.
    """

    streams: int
    window_s: float
    steps_s: Sequence[float]
    busy_s: float
    decodes_s: Sequence[float]
    decode_rows: Sequence[float]
    samples: int
    late_chunks: int
    reports: Sequence[UtteranceReport]
    thread_cores: Mapping[str, float]
    waited_share: float | None
    host_memory_bytes: int
    device_memory_bytes: int | None = None
    trace: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def row(self) -> dict[str, Any]:
        """The level as a row of a result; a percentile only of as many values as it needs.

        `rtf` is of all streams together: their time over the audio that they gave. `beside_ms` is
        of a round, what the thread does beside the step; `between_ms` is what passes from a round
        to the next.
        """
        steps = len(self.steps_s)
        step_ms = statistics.fmean(self.steps_s) * 1e3 if steps else None
        busy_ms = self.busy_s / steps * 1e3 if steps else None
        interval_ms = self.window_s / steps * 1e3 if steps else None
        firsts = {
            name: [value for r in self.reports if (value := getattr(r, name)) is not None]
            for name in ("ttfa_ms", "ttfs_ms")
        }
        return {
            "streams": self.streams,
            "window_s": self.window_s,
            "steps": steps,
            **{
                f"step_ms_p{percent}": nearest_rank(self.steps_s, percent) * 1e3
                for percent, least in LEAST_FOR.items()
                if steps >= least
            },
            "step_ms_mean": step_ms,
            "beside_ms_mean": _less(busy_ms, step_ms),
            "between_ms_mean": _less(interval_ms, busy_ms),
            "interval_ms_mean": interval_ms,
            "decode_calls": len(self.decodes_s),
            "decode_ms_mean": _mean(self.decodes_s, 1e3),
            "decode_rows_mean": _mean(self.decode_rows),
            "audio_s": self.samples / SAMPLE_RATE_HZ,
            "rtf": self.streams * self.window_s * SAMPLE_RATE_HZ / self.samples
            if self.samples
            else None,
            "late_chunks": self.late_chunks,
            "utterances": len(self.reports),
            **{
                f"{name}_p50": nearest_rank(values, 50) for name, values in firsts.items() if values
            },
            "thread_cores": dict(self.thread_cores),
            "waited_share": self.waited_share,
            "host_memory_mib": self.host_memory_bytes / _MIB,
            "device_memory_gib": None
            if self.device_memory_bytes is None
            else self.device_memory_bytes / _GIB,
            **self.trace,
        }


def context_tokens(reports: Sequence[UtteranceReport]) -> float | None:
    """Tokens that a stream has in the mean over its time, its prompt with them; None: none ended.

    A step reads the keys and values of all of them. An utterance of n tokens is at each of its
    lengths for as long, and long ones are there for longer.
    """
    made = [report.output_tokens for report in reports if report.output_tokens]
    if not made:
        return None
    prompt = statistics.fmean(report.input_tokens for report in reports if report.output_tokens)
    return prompt + sum(n * n for n in made) / sum(made) / 2


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Figures of a result's rows: of each level the time from step to step and its parts, and the
    most streams of a level without a late chunk, no lower one having had one."""
    ascending = sorted(rows, key=lambda row: row["streams"])
    held = 0
    for row in ascending:
        if row["late_chunks"] or not row["steps"]:
            break
        held = row["streams"]
    value = {"streams_without_late_chunk": Figure(held, "streams")}
    for row in ascending:
        for name in ("step_ms_p50", "interval_ms_mean", "beside_ms_mean", "lm_ms", "codec_ms"):
            if row.get(name) is not None:
                value[f"{name}_{row['streams']}"] = Figure(row[name], "ms", row["steps"])
    return value


def _mean(values: Sequence[float], scale: float = 1.0) -> float | None:
    return statistics.fmean(values) * scale if values else None


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else max(0.0, whole - part)
