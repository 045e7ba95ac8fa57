"""Listening: the same sentences of every preset, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.report.clips import LIMIT_BYTES, was_heard
from speech_assets.report.commands import work_command
from speech_assets.report.section import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.report.clips import ClipRow
    from speech_assets.report.evidence import Evidence


def listening_section(evidence: Evidence, rows: Sequence[ClipRow], sentences: int) -> Section:
    """Players of `rows`, of the `sentences` that there are samples of."""
    paragraphs = [
        (
            "What servers of the presets said, as MP3 of 64 kb/s; the store has the WAV files. "
            "Below each is what Whisper heard, where it was asked."
        )
    ]
    if len(rows) < sentences:
        paragraphs.append(
            f"{len(rows)} of {sentences} sentences are here: more would make the page larger than "
            f"{LIMIT_BYTES / 1e6:.0f} MB of audio. The others are in the store, under `samples/`."
        )
    others = [
        f"`{preset}`"
        for preset in evidence.samples
        if evidence.of("wer", preset) is not None and not was_heard(evidence, preset)
    ]
    if others:
        paragraphs.append(
            f"Of {', '.join(others)} no transcripts are shown: WER was measured on other samples "
            "than these."
        )
    without = [f"`{preset}`" for preset in evidence.presets if preset not in evidence.samples]
    missing: tuple[str, ...] = ()
    if without:
        missing = (
            (
                f"No samples in the store of {', '.join(without)}. Asset `samples` makes them; by "
                f"hand: `{work_command('samples', '--preset', 'NAME')}`."
            ),
        )
    return Section(
        "listening",
        "Listening",
        paragraphs=tuple(paragraphs) if rows else (),
        clips=tuple(rows),
        clip_presets=tuple(p for p in evidence.presets if p in evidence.samples),
        missing=missing,
    )
