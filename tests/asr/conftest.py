"""Whisper tiny.en, loaded once, and real speech for it to hear."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
import soxr

from speech_assets.asr.transcriber import SAMPLE_RATE_HZ, Transcriber, load_transcriber

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Clip = tuple[str, NDArray[np.float32]]


@pytest.fixture(scope="session")
def transcriber() -> Transcriber:
    return load_transcriber("tiny.en-package")


@pytest.fixture(scope="session")
def prompts(embedded_rows: list[dict[str, Any]]) -> list[Clip]:
    """Texts of the recordings of the corpus' first file with their samples, float32 at 16 kHz."""
    made: list[Clip] = []
    for row in embedded_rows:
        samples, rate_hz = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="float32")
        at_16k = soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ).astype(np.float32)
        made.append((row["text_normalized"], at_16k))
    return made
