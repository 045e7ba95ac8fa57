"""Synthesise the embedded voice's training speech: texts in, packs of one voice out.

    python -m speech_assets.work.voice_corpus --voice michael --voice-file voices/am_michael.bin
        --texts text.jsonl.xz --out DIR [--ids 0:70] [--skip DIR ...] [--hours 1.5] [--part 1/2]

Goes on where it stopped: texts that --out or a --skip folder already speaks are left out. Packs
appear whole, one every five minutes of speech, so that training may start on the first. One process
uses one core; --part K/N gives each of N processes its share (and each its own --out).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from speech_assets.voice.kokoro import Kokoro, TeacherMissingError
from speech_assets.voice.packs import (
    PACK_S,
    SAMPLE_RATE_HZ,
    Utterance,
    read_index,
    trim,
    write_pack,
)
from speech_assets.voice.texts import VoiceText, read_texts

BEFORE_S, AFTER_S = 0.15, 0.30  # Silence kept: the decoder's context needs some at the ends.


def main(argv: list[str] | None = None) -> int:
    """Synthesise as the command line says; 0 when done, 2 when something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--voice", required=True, help="name of the voice in the packs")
    parser.add_argument("--voice-file", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ids", default="", metavar="FIRST:END", help="texts to speak")
    parser.add_argument("--skip", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--hours", type=float, default=float("inf"), help="stop after this much")
    parser.add_argument("--part", default="1/1", metavar="K/N")
    args = parser.parse_args(argv)
    try:
        speak = Kokoro(args.voice_file)
        wanted = select(read_texts(args.texts), args.ids, args.part, [args.out, *args.skip])
    except (TeacherMissingError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    synthesise(speak, wanted, args.voice, args.out, args.hours)
    return 0


def select(
    texts: dict[int, VoiceText], ids: str, part: str, done_in: list[Path]
) -> list[VoiceText]:
    """Texts of the range `ids` and of share `part` that no folder of `done_in` speaks yet.

    Raises:
        ValueError: a malformed `ids` or `part`.
    """
    first, end = _pair(ids, ":", "--ids FIRST:END") if ids else (0, max(texts, default=0) + 1)
    share, shares = _pair(part, "/", "--part K/N")
    if not 1 <= share <= shares:
        raise ValueError(f"--part {part}: K must be 1 to N")
    done = {i for folder in done_in for pack in read_index(folder) for i, _ in pack}
    in_range = [texts[i] for i in sorted(texts) if first <= i < end]
    return [text for text in in_range[share - 1 :: shares] if text.id not in done]


def synthesise(speak: Kokoro, wanted: list[VoiceText], voice: str, out: Path, hours: float) -> None:
    """Speak `wanted` into packs below `out` until `hours` of speech are made."""
    pending: list[Utterance] = []
    made_s, began = 0.0, time.monotonic()
    for text in wanted:
        samples = trim(speak(text.phonemes), before_s=BEFORE_S, after_s=AFTER_S)
        whole = np.clip(samples * 32767, -32767, 32767).astype(np.int16)
        pending.append(Utterance(text.id, voice, whole))
        made_s += len(whole) / SAMPLE_RATE_HZ
        enough = made_s >= hours * 3600
        if enough or sum(len(u.samples) for u in pending) >= PACK_S * SAMPLE_RATE_HZ:
            _flush(pending, out, made_s, began)
        if enough:
            return
    _flush(pending, out, made_s, began)


def _flush(pending: list[Utterance], out: Path, made_s: float, began: float) -> None:
    if not pending:
        return
    path = write_pack(out, pending)
    pending.clear()
    rtf = (time.monotonic() - began) / made_s
    print(f"{path}: {made_s / 3600:.2f} h in all, RTF {rtf:.2f}", flush=True)


def _pair(value: str, between: str, form: str) -> tuple[int, int]:
    first, found, second = value.partition(between)
    if not (found and first.isdigit() and second.isdigit()):
        raise ValueError(f"{value!r} is not of the form {form}")
    return int(first), int(second)


if __name__ == "__main__":
    sys.exit(main())
