"""Score samples of the embedded voice: word and character error rates by Whisper, and DNSMOS.

--samples is a folder that `voice_samples` wrote. The figures of its clips become a result file of
kind `voice_codec` (resynthesised recordings) or `voice_speech` (free-running speech) in the store
--out, with 95 % intervals from resampling sentences. With a --reference (for a codec: its
recordings, in `original/`, unless given) the result also holds its figures, and the paired
differences over the sentences that both have. Runs on a CPU.
"""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from resources.store import Store
from speech_assets.results.provenance import cpu_device, installed_software, measurement_began
from speech_assets.results.result import Figure, Result
from speech_assets.voice.held_out import RESYNTHESISED_IDS, SPOKEN_IDS
from speech_assets.voice.judges import ASR, PACKAGES, judges, read_samples, score
from speech_assets.voice.scores import Scored, figures_of, less_reference
from speech_assets.voice.texts import read_texts
from speech_assets.work import worker

KINDS = {"speak": "voice_speech", "resynthesise": "voice_codec", "recordings": "voice_speech"}
FEWEST_SEEDS = 3
"""Of free-running speech; a result of fewer is marked as reduced."""


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_eval`."""
    worker.run(evaluate, argument_parser())


def argument_parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("voice_eval", __doc__ or "")
    parser.add_argument("--samples", type=Path, required=True, metavar="DIR")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="samples to compare with")
    parser.add_argument("--texts", type=Path, required=True, help="text.jsonl or text.jsonl.xz")
    worker.add_result_store(parser)
    parser.add_argument("--no-mos", action="store_true", help="words alone, three times as fast")
    return parser


def evaluate(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Score the samples that the command line names and store the result.

    Raises:
        SpeechAssetsError: samples, texts or the judges' packages are not there or do not fit.
    """
    started_at = measurement_began()
    folder: Path = arguments.samples
    original = folder / "original"
    reference: Path | None = arguments.reference or (original if original.is_dir() else None)
    folders = [folder, *([reference] if reference else [])]
    described = [read_samples(f) for f in folders]
    texts = {number: text.text for number, text in read_texts(arguments.texts).items()}
    by = judges(with_quality=not arguments.no_mos)
    reporter.start(sum(row["samples"] for d in described for row in d["clips"]) / 24_000, "s")
    scored = [
        score(f, d["clips"], texts, by, reporter.advance)
        for f, d in zip(folders, described, strict=True)
    ]
    figures = figures_of(scored[0]) | _endings(described[0]["clips"])
    for clips in scored[1:]:
        theirs = figures_of(clips).items()
        figures |= {f"reference_{name}": figure for name, figure in theirs}
        figures |= less_reference(scored[0], clips)
    what = described[0]["asked"]["what"]
    result = Result(
        kind=KINDS[what],
        name=_name(described[0]),
        started_at=started_at,
        device=cpu_device(),
        command="python -m speech_assets.work.voice_eval",
        config={
            "samples": described[0]["made"],
            "asked": described[0]["asked"],
            "reference": described[1]["made"] if reference else None,
            "sentences": len({clip.id for clip in scored[0]}),
            "texts_sha256": hashlib.sha256(arguments.texts.read_bytes()).hexdigest(),
            "asr": ASR,
            "mos": None if arguments.no_mos else "DNSMOS (speechmos)",
        },
        rows=[asdict(clip) for clip in scored[0]],
        figures=figures,
        reduced=is_reduced(what, scored[0]),
        seeds=sorted({clip.seed for clip in scored[0]}),
        software={**installed_software(), **{name: version(name) for name in PACKAGES}},
    )
    store = Store(arguments.out)
    store.write_json(result.key, result.as_json())
    reporter.log(f"result: {store.path(result.key)}")
    reporter.result(
        "figures",
        key=result.key,
        **{name: figure.value for name, figure in figures.items()},
    )
    for name in ("wer", "cer", "dnsmos_overall"):
        if name in figures:
            figure = figures[name]
            reporter.log(f"{name} {figure.value:.4f} ({figure.ci_low:.4f} to {figure.ci_high:.4f})")


def is_reduced(what: str, clips: list[Scored]) -> bool:
    """Whether sentences or seeds are missing of the fixed sets."""
    wanted = RESYNTHESISED_IDS if what == "resynthesise" else SPOKEN_IDS
    seeds = {clip.seed for clip in clips}
    return {clip.id for clip in clips} != set(wanted) or (
        what == "speak" and len(seeds) < FEWEST_SEEDS
    )


def _endings(rows: list[dict[str, Any]]) -> dict[str, Figure]:
    """How many clips of a language model ended by themselves."""
    if "stopped" not in rows[0]:
        return {}
    stopped = sum(bool(row["stopped"]) for row in rows)
    return {"stopped_share": Figure(round(stopped / len(rows), 5), "share", len(rows))}


def _name(described: dict[str, Any]) -> str:
    made = described["made"]
    return str(made.get("lm") or made.get("codec") or made["name"])


if __name__ == "__main__":
    main()
