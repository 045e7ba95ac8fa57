"""What the formats that could hold the embedded corpus cost and keep, measured on its prompts."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

from speech_assets.corpus.embedded.clips import PROMPT_RATE_HZ
from speech_assets.corpus.embedded.storage import PROMPT_STORAGE, Storage, check_stored, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from speech_assets.corpus.embedded.clips import Clip

COMPARED_EVERY = 16
COMPARED = (
    Storage("flac", PROMPT_RATE_HZ, subtype="PCM_16"),
    replace(PROMPT_STORAGE, bit_rate=24_000),
    PROMPT_STORAGE,
    replace(PROMPT_STORAGE, bit_rate=48_000),
    Storage("vorbis", PROMPT_RATE_HZ, level=0.7),
    Storage("mp3", PROMPT_RATE_HZ, level=0.5),
)
_SPEECH_RANGE_DB = 40.0
_FLOOR = 1e-9  # 90 dB below full scale, far below the noise of G.722.


@dataclass(frozen=True, slots=True)
class Comparison:
    """One format, over some prompts, against the G.722 decode.

    `kbit_per_s` counts the audio column as parquet stores it. `snr_db` is over all samples, None
    where nothing is lost. `log_spectral_distance_db`: mean over the frames of speech of the RMS
    difference of 80 mel bands.
    """

    format: str
    clips: int
    kbit_per_s: float
    snr_db: float | None
    log_spectral_distance_db: float
    ships: bool


def compare_formats(prompts: Sequence[Clip]) -> list[Comparison]:
    """COMPARED, each on every COMPARED_EVERY-th of `prompts`.

    Raises:
        CorpusError: a format does not give back the samples that it was given.
    """
    sample = prompts[::COMPARED_EVERY]
    return [_compare(sample, storage) for storage in COMPARED]


def _compare(sample: Sequence[Clip], storage: Storage) -> Comparison:
    files = [encode(clip.pcm, storage) for clip in sample]
    signal = noise = 0.0
    distances: list[float] = []
    for clip, data in zip(sample, files, strict=True):
        check_stored(data, clip.pcm, storage, clip.id)
        wanted: NDArray[np.float64] = clip.pcm[:, 0] / 32768.0
        samples, rate_hz = soundfile.read(io.BytesIO(data))
        got = np.asarray(samples, np.float64)
        signal += float(np.sum(wanted**2))
        noise += float(np.sum((wanted - got) ** 2))
        distances.append(log_spectral_distance_db(wanted, got, rate_hz))
    seconds = sum(clip.duration_s for clip in sample)
    return Comparison(
        format=storage.label,
        clips=len(sample),
        kbit_per_s=round(_column_bytes(files) * 8 / seconds / 1000, 1),
        snr_db=round(10 * float(np.log10(signal / noise)), 1) if noise else None,
        log_spectral_distance_db=round(float(np.mean(distances)), 2),
        ships=storage == PROMPT_STORAGE,
    )


def _column_bytes(files: list[bytes]) -> int:
    out = io.BytesIO()
    table = pa.table({"bytes": pa.array(files, pa.binary())})
    pq.write_table(
        table,
        out,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
    )
    return len(out.getvalue())


def log_spectral_distance_db(
    wanted: NDArray[np.float64], got: NDArray[np.float64], rate_hz: int
) -> float:
    """Mean over the frames of speech in `wanted` of the RMS difference of mel levels, in dB.

    A frame is speech when its loudest band is within 40 dB of the clip's.
    """
    levels = _mel_levels_db(wanted, rate_hz)
    loudest = levels.max(axis=1)
    speech = loudest > loudest.max() - _SPEECH_RANGE_DB
    difference = (levels - _mel_levels_db(got, rate_hz))[speech]
    return float(np.sqrt(np.mean(difference**2, axis=1)).mean())


def _mel_levels_db(samples: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    """Levels in dB, (frames, 80), of mel bands from 60 Hz to 7.8 kHz, every 10 ms."""
    window = np.hanning(512)
    padded = np.pad(samples, (0, len(window)))
    frames = np.lib.stride_tricks.sliding_window_view(padded, len(window))[:: rate_hz // 100]
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2 / window.sum() ** 2
    lowest, highest = (2595 * float(np.log10(1 + hz / 700)) for hz in (60.0, 7_800.0))
    edges = 700 * (10 ** (np.linspace(lowest, highest, 82) / 2595) - 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    hz = np.fft.rfftfreq(len(window), 1 / rate_hz)
    bands = np.clip(np.minimum((hz - low) / (centre - low), (high - hz) / (high - centre)), 0, None)
    return 10 * np.log10(power @ bands.T + _FLOOR)
