"""Packs of speech: Ogg Opus files of many utterances end to end, with an index of who is where.

A folder of packs holds ``pNNN.opus`` (24 kHz, mono) and ``index.json``: for each file the list of
``[utterance id, samples]``. Opus through libsndfile keeps lengths exact.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 24_000
PACK_S = 300  # Seconds of speech in a pack.
COMPRESSION_LEVEL = 0.87  # libsndfile's scale; about 38 kb/s.


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance's samples (int16, 24 kHz) with its text's id and its voice."""

    id: int
    voice: str
    samples: NDArray[np.int16]


def write_pack(folder: Path, utterances: list[Utterance]) -> Path:
    """Append one pack to `folder`; its index names the pack only once the file is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    index = read_index(folder)
    path = folder / f"p{len(index):03d}.opus"
    temporary = path.with_suffix(".tmp")
    samples = np.concatenate([u.samples for u in utterances])
    soundfile.write(
        temporary,
        samples,
        SAMPLE_RATE_HZ,
        format="OGG",
        subtype="OPUS",
        compression_level=COMPRESSION_LEVEL,
    )
    temporary.replace(path)
    index.append([(u.id, len(u.samples)) for u in utterances])
    written = folder / "index.tmp"
    written.write_text(json.dumps(index), "utf-8")
    written.replace(folder / "index.json")
    return path


def read_index(folder: Path) -> list[list[tuple[int, int]]]:
    """(utterance id, samples) by pack; empty where nothing is written yet."""
    path = folder / "index.json"
    if not path.exists():
        return []
    return [[(i, n) for i, n in pack] for pack in json.loads(path.read_text("utf-8"))]


def read_pack(folder: Path, number: int, voice: str) -> list[Utterance]:
    """Utterances of pack `number` of `folder`.

    Raises:
        ValueError: the file's length is not the index's.
    """
    rows = read_index(folder)[number]
    path = folder / f"p{number:03d}.opus"
    found: Any = soundfile.read(path, dtype="int16")
    samples, rate = found
    wanted = sum(n for _, n in rows)
    if rate != SAMPLE_RATE_HZ or len(samples) != wanted:
        raise ValueError(f"{path}: {len(samples)} samples at {rate} Hz, the index says {wanted}")
    ends = np.cumsum([n for _, n in rows])
    return [
        Utterance(i, voice, samples[end - n : end]) for (i, n), end in zip(rows, ends, strict=True)
    ]


def read_packs(
    folder: Path, voice: str, *, skip: frozenset[int] = frozenset(), threads: int = 8
) -> tuple[list[Utterance], set[int]]:
    """Utterances of every pack of `folder` that is there and not in `skip`; those packs' numbers.

    A pack that the index names but the folder lacks (not copied yet) is left for a later call.
    """
    numbers = [
        n
        for n in range(len(read_index(folder)))
        if n not in skip and (folder / f"p{n:03d}.opus").exists()
    ]
    with ThreadPoolExecutor(threads) as pool:
        packs = list(pool.map(lambda n: read_pack(folder, n, voice), numbers))
    return [u for pack in packs for u in pack], set(numbers)


def trim(
    samples: NDArray[np.float32], *, before_s: float, after_s: float, threshold: float = 0.02
) -> NDArray[np.float32]:
    """`samples` from `before_s` before to `after_s` after what exceeds `threshold` of the peak."""
    loud = np.flatnonzero(np.abs(samples) > threshold * np.abs(samples).max())
    first = max(0, int(loud[0]) - round(before_s * SAMPLE_RATE_HZ))
    last = min(len(samples), int(loud[-1]) + 1 + round(after_s * SAMPLE_RATE_HZ))
    return samples[first:last]
