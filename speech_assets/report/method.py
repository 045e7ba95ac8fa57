"""The last sections: what the words mean, what the figures do not say, and how to make it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.frames import REALTIME_TOKENS_PER_S, SAMPLE_RATE_HZ, SAMPLES_PER_FRAME, TOKENS_PER_FRAME
from speech_assets.report.cells import Cell, table
from speech_assets.report.commands import commands_of
from speech_assets.report.section import Section

if TYPE_CHECKING:
    from speech_assets.report.evidence import Evidence

_TERMS = (
    ("TTFA", "Time to first audio: from the request sent to the first byte of audio."),
    (
        "TTFS",
        "Time to first speech: from the request sent to the first audible sample (the first 10 ms "
        "above -40 dBFS) as a player without a buffer plays it.",
    ),
    (
        "RTF",
        "Real-time factor: the time to the last byte over the audio's duration. Below 1 is faster "
        "than it plays.",
    ),
    ("underrun", "A moment at which a player without a buffer has nothing to play."),
    (
        "generating N",
        "A closed loop: N requests are always in flight, the next begins where one ends.",
    ),
    (
        "listening N",
        "An open loop: requests arrive at random (Poisson) at the rate at which N people listen "
        "at once, whether or not earlier ones have ended. The server runs ahead, so fewer are in "
        "flight. A client that sent them late (p99 above its limit) makes the result invalid, or "
        "is marked as late where that was asked for.",
    ),
    (
        "streams",
        "The largest level that passed, with every smaller one; beside it the level below, which "
        "is one level of margin. At least N: no level failed.",
    ),
    (
        "tokens/s alone",
        f"Decoding of one stream without a server. {TOKENS_PER_FRAME} tokens are a frame of "
        f"{SAMPLES_PER_FRAME:,} samples at {SAMPLE_RATE_HZ:,} Hz, so realtime is "
        f"{REALTIME_TOKENS_PER_S:.2f}.",
    ),
    (
        "bandwidth floor",
        "The bytes that a step must read over the memory's measured bandwidth: no step can be "
        "faster. 100 % would be a step that only waits for memory.",
    ),
    (
        "mean KL",
        "How far the preset's next-token distribution is from the base model's, in nats, over "
        "every token of what the base model said of texts that calibrated nothing.",
    ),
    (
        "WER, CER",
        "Wrong words (letters) of Whisper's transcript over the words (letters) that were asked "
        "for, after Whisper's English normalizer, added up over all clips.",
    ),
    (
        "speaker similarity",
        "Cosine of two voices as a pretrained encoder has them (GE2E, Resemblyzer's weights), of "
        "clips with 1.2 s of voiced speech or more. Near 1 they are alike; what two clips of one "
        "speaker reach depends on their length, so the first preset's own stands beside it: its "
        "other seed of the sentence, or with one seed another sentence.",
    ),
    (
        "intervals",
        "95 % percentile intervals of 10,000 bootstrap resamples over sentences, a sentence with "
        "all its seeds being one draw (of mean KL over generations); differences are paired by "
        "sentence. Of tokens/s the range of runs is shown instead.",
    ),
    ("p95", "Shown only from 40 requests on: fewer do not tell it."),
)
_LIMITS = (
    "One run of each kind is shown, the newest; `speech-results list --stored` lists the others.",
    "WER is of the voice and of Whisper together, on sentences of this project's own. It ranks "
    "presets of one voice; it compares with no figure of another test set.",
    "Whether a voice is pleasant, nobody was asked. DNSMOS is a network's guess at it.",
    "Client and server share the machine of a load test unless it says otherwise, so that a "
    "server of its own may hold more.",
    "A load test knows one length and kind of text; other texts give other figures.",
)


def method_section() -> Section:
    """Words, and how figures are made."""
    return Section("method", "Method", terms=_TERMS)


def limits_section(evidence: Evidence) -> Section:
    """What the figures do not say."""
    own = (
        "The embedded voice is small, trained on synthetic speech of one voice, and mostly "
        "intelligible. It exercises every part; its figures are no forecast for a large model.",
    ) * evidence.is_embedded
    return Section("limits", "Limits", paragraphs=(*own, *_LIMITS))


def again_section(evidence: Evidence) -> Section:
    """Commands: those of the results, and those of the report."""
    return Section(
        "again",
        "How to make it again",
        paragraphs=(
            (
                "`make demo` runs the lineage of the profile in a reduced form and ends in such a "
                "report; `make ui` shows every step. By hand, in the project's folder after "
                "`make setup`: the commands of the results, each after what it needs, and then "
                "those of the report, which a check compares with its results. What there is of "
                "the same is kept; times are the machine's own."
            ),
        ),
        commands=commands_of(evidence),
    )


def sources_section(evidence: Evidence) -> Section:
    """Every result that the page is made from."""
    heads = ("result", "device", "started", "commit", "status", "sha256 of its file")
    rows = [
        [
            Cell(found.id),
            Cell(found.device),
            Cell(str(found.value["started_at"])),
            Cell(found.commit),
            Cell(
                str(found.value["status"]),
                note=", ".join(evidence.doubts(found)),
            ),
            Cell(found.sha256),
        ]
        for found in evidence.results
    ]
    rows += [
        [Cell(sheet.key), *[Cell("-")] * 4, Cell(sheet.sha256)]
        for sheet in (*evidence.manifests, *evidence.samples.values())
    ]
    unread = [[Cell(why)] for why in evidence.unreadable]
    return Section(
        "sources",
        "Sources",
        paragraphs=("All figures above are of these files of the store, below `results/`.",),
        tables=table("Files that the report is made from", heads, rows)
        + table("Files that could not be read and were passed over", ("why",), unread),
    )
