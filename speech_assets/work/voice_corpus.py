"""Synthesise the embedded voice's training speech: texts in, packs of one voice out.

Goes on where it stopped: texts that --out or a --skip folder already speaks are left out, and
--hours counts what --out has. Packs appear whole, one every five minutes of speech, so that
training may start on the first. One process uses one core; --part K/N gives each of N processes its
share (and each its own --out).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from speech_assets.errors import ConfigError
from speech_assets.voice.files import sum_of
from speech_assets.voice.held_out import HELD_OUT_IDS
from speech_assets.voice.kokoro import Kokoro
from speech_assets.voice.packs import (
    PACK_S,
    SAMPLE_RATE_HZ,
    Utterance,
    read_index,
    trim,
    write_pack,
)
from speech_assets.voice.texts import VoiceText, read_texts
from speech_assets.voice.versions import CORPUS_CODE_VERSION
from speech_assets.work import worker

BEFORE_S, AFTER_S = 0.15, 0.30  # Silence kept: the decoder's context needs some at the ends.
MEAN_TEXT_S = 3.9  # Of speech, for the bar alone: the mean of 2,419 clips of heart.


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_corpus`."""
    worker.run(make_corpus, argument_parser())


def argument_parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("voice_corpus", __doc__ or "")
    parser.add_argument("--voice", required=True, help="name of the voice in the packs")
    parser.add_argument("--voice-file", type=Path, required=True, help="a .bin of kokoro-js")
    parser.add_argument("--texts", type=Path, required=True, help="text.jsonl or text.jsonl.xz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ids", default="", metavar="FIRST:END", help="texts to speak")
    parser.add_argument("--skip", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--hours", type=float, default=math.inf, help="of speech in --out, at most")
    parser.add_argument("--part", default="1/1", metavar="K/N")
    return parser


def make_corpus(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Synthesise as the command line says.

    Raises:
        SpeechAssetsError: the teacher is not installed, or texts or arguments are not right.
    """
    out: Path = arguments.out
    texts = read_texts(arguments.texts)
    wanted = select(texts, arguments.ids, arguments.part, [out, *arguments.skip])
    speak = Kokoro(arguments.voice_file)
    had_s = sum(n for pack in read_index(out) for _, n in pack) / SAMPLE_RATE_HZ
    left_hours = max(0.0, min(arguments.hours - had_s / 3600, len(wanted) * MEAN_TEXT_S / 3600))
    reporter.start(left_hours, "h")
    synthesise(speak, wanted, arguments.voice, out, arguments.hours, reporter)
    index = read_index(out)
    ids = {number for pack in index for number, _ in pack}
    reporter.result(
        "voice_corpus",
        voice=arguments.voice,
        code_version=CORPUS_CODE_VERSION,
        clips=len(ids),
        packs=len(index),
        hours=sum(n for pack in index for _, n in pack) / SAMPLE_RATE_HZ / 3600,
        held_out_clips=len(ids & set(HELD_OUT_IDS)),
        packs_sum=sum_of(out),
    )


def select(
    texts: dict[int, VoiceText], ids: str, part: str, done_in: list[Path]
) -> list[VoiceText]:
    """Texts of the range `ids` and of share `part` that no folder of `done_in` speaks yet.

    Raises:
        ConfigError: a malformed `ids` or `part`.
    """
    first, end = _pair(ids, ":", "--ids FIRST:END") if ids else (0, max(texts, default=0) + 1)
    share, shares = _pair(part, "/", "--part K/N")
    if not 1 <= share <= shares:
        raise ConfigError(f"--part {part}: K must be 1 to N")
    done = {i for folder in done_in for pack in read_index(folder) for i, _ in pack}
    in_range = [texts[i] for i in sorted(texts) if first <= i < end]
    return [text for text in in_range[share - 1 :: shares] if text.id not in done]


def synthesise(
    speak: Kokoro,
    wanted: list[VoiceText],
    voice: str,
    out: Path,
    hours: float,
    reporter: worker.Reporter,
) -> None:
    """Speak `wanted` into packs below `out` until it holds `hours` of speech."""
    pending: list[Utterance] = []
    made_s = sum(n for pack in read_index(out) for _, n in pack) / SAMPLE_RATE_HZ
    for text in wanted:
        if made_s >= hours * 3600:
            break
        samples = trim(speak(text.phonemes), before_s=BEFORE_S, after_s=AFTER_S)
        whole = np.clip(samples * 32767, -32767, 32767).astype(np.int16)
        pending.append(Utterance(text.id, voice, whole))
        made_s += len(whole) / SAMPLE_RATE_HZ
        reporter.advance(len(whole) / SAMPLE_RATE_HZ / 3600)
        if sum(len(u.samples) for u in pending) >= PACK_S * SAMPLE_RATE_HZ:
            write_pack(out, pending)
            pending.clear()
    if pending:
        write_pack(out, pending)


def _pair(value: str, between: str, form: str) -> tuple[int, int]:
    first, found, second = value.partition(between)
    if not (found and first.isdigit() and second.isdigit()):
        raise ConfigError(f"{value!r} is not of the form {form}")
    return int(first), int(second)


if __name__ == "__main__":
    main()
