"""Samples of a preset without a server: sounds that a test has, kept as `work.samples` does."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from server.wav import wav_header
from speech_assets.quality.samples import SCHEMA_VERSION, MadeWith, SpokenClip, samples_key
from speech_assets.quality.sentences import CODE_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from resources.store import Store


def kept_clip(
    store: Store,
    preset: str,
    number: int,
    sentence: str,
    sound: NDArray[np.int16] | bytes | None,
    **changed: Any,
) -> SpokenClip:
    """A clip kept in the store: int16 PCM at 24 kHz, a file's bytes, or None for a refusal."""
    given: dict[str, Any] = {"kind": "short", "seed": 1, "finish_reason": "stop", **changed}
    if sound is None:
        given |= {"file": "", "seconds": 0.0, "finish_reason": "refused", "error": "400: no"}
    else:
        data = sound if isinstance(sound, bytes) else wav_header(2 * len(sound)) + sound.tobytes()
        key = f"samples/{preset}/{number:03d}-{given['seed']}.wav"
        store.write_bytes(key, data)
        seconds = 0.0 if isinstance(sound, bytes) else len(sound) / 24_000
        given |= {"file": key, "seconds": seconds, "sha256": hashlib.sha256(data).hexdigest()}
    return SpokenClip(sentence_id=number, sentence=sentence, **given)


def made_with(preset: str) -> MadeWith:
    """What made the clips of these tests."""
    return MadeWith(
        preset=preset,
        config_sha256="0" * 64,
        weights={"model": "1", "codec": "2"},
        code_version=CODE_VERSION,
        server_sha256="1" * 64,
        software={"torch": "2.13.0"},
        device="A CPU",
    )


def keep(store: Store, preset: str, clips: Sequence[SpokenClip], **asked: Any) -> None:
    """The description of a preset's samples, of which all were asked for unless `asked` says so."""
    store.write_json(
        samples_key(preset),
        {
            "schema_version": SCHEMA_VERSION,
            "made_with": asdict(made_with(preset)),
            "asked": {
                "sentences": 1 + max(clip.sentence_id for clip in clips),
                "seeds": sorted({clip.seed for clip in clips}),
                **asked,
            },
            "clips": [asdict(clip) for clip in clips],
        },
    )
