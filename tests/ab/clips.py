"""Raw rows and WAVs of two arms by hand, as a comparison keeps them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from server.wav import wav_header
from speech_assets.ab.plan import texts_sha256
from speech_assets.ab.raw import RawArm, RawRow, write_raw

if TYPE_CHECKING:
    from resources.store import Store

TEXTS = {0: "Try the blue one first.", 1: "Nobody answered the bell."}
FOLDER = "ab/one-vs-other/20261130000000"


def raw_row(sentence: int = 0, seed: int = 1, **changed: Any) -> RawRow:
    """A clip of 2 s in 24 frames: 100 ms of decoding, 1,000 ms in 200 steps."""
    given: dict[str, Any] = {
        "sentence_id": sentence,
        "kind": "short",
        "seed": seed,
        "text": TEXTS.get(sentence, f"Sentence {sentence}."),
        "position": 0,
        "file": "there.wav",
        "file_sha256": "",
        "samples": 48_000,
        "frames": 24,
        "finish_reason": "stop",
        "wall_ms": 1_200.0,
        "first_audio_ms": 150.0,
        "lm_ms": 1_000.0,
        "lm_steps": 200,
        "decode_ms": 100.0,
        "decode_calls": 6,
    }
    return RawRow(**{**given, **changed})


def raw_arm(letter: Any, *rows: RawRow, **changed: Any) -> RawArm:
    """An arm with those rows."""
    given: dict[str, Any] = {
        "arm": letter,
        "label": f"preset-{letter}",
        "preset": f"preset-{letter}",
        "settings": {"codec": "embedded/codec", "largest_hop": 4},
        "config_sha256": "0" * 64,
        "weights": {"model": "1", "codec": "2"},
        "engine": {"device": "cpu"},
        "unchecked": False,
        "warmup_clips": 2,
        "memory_mib": 1_000.0,
        "memory_measure": "peak resident memory",
        "rows": rows,
    }
    return RawArm(**{**given, **changed})


def kept_row(store: Store, letter: str, pcm: np.ndarray, sentence: int = 0, **changed: Any):
    """A row whose WAV is in the store; none of an empty clip."""
    key, data = "", wav_header(2 * len(pcm)) + pcm.astype("<i2").tobytes()
    if len(pcm):
        key = f"{FOLDER}/{letter}/{sentence:03d}-1.wav"
        store.write_bytes(key, data)
    return raw_row(
        sentence,
        file=key,
        file_sha256=hashlib.sha256(data).hexdigest() if key else "",
        samples=len(pcm),
        **changed,
    )


def tone(samples: int = 24_000, amplitude: int = 8_000) -> np.ndarray:
    """A sine of 200 Hz, int16."""
    return np.round(amplitude * np.sin(np.arange(samples) * 2 * np.pi / 120)).astype(np.int16)


def kept_pair(store: Store, a: RawArm, b: RawArm) -> dict[str, Any]:
    """What a result's config says of both arms, whose rows are in the store now."""
    return {
        "raw": {arm.arm: write_raw(store, FOLDER, arm) for arm in (a, b)},
        "asked": [[0, 1], [1, 1]],
        "texts_sha256": texts_sha256(TEXTS.items()),
    }


def whole_pair(store: Store) -> dict[str, Any]:
    """The same of two arms that say the same, but for one sample."""
    other = tone()
    other[100] += 2
    a = raw_arm("a", *(kept_row(store, "a", tone(), n) for n in TEXTS))
    b = raw_arm("b", *(kept_row(store, "b", other, n) for n in TEXTS))
    return kept_pair(store, a, b)
