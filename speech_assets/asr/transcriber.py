"""What was said in a clip: Whisper, without randomness, of any length of audio.

Temperature 0 and no text of an earlier window as context, so that a clip's transcript depends on
the clip and the weights alone, and an error does not spread.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from whisper.audio import SAMPLE_RATE
from whisper.timing import dtw_cpu
from whisper.tokenizer import get_tokenizer
from whisper.transcribe import transcribe

from speech_assets.asr.chunks import Word, join, windows
from speech_assets.asr.weights import load_weights
from speech_assets.audio_health import SILENCE_DBFS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from whisper.model import Whisper

SAMPLE_RATE_HZ = SAMPLE_RATE
BLOCK_SAMPLES = SAMPLE_RATE // 100  # 10 ms
AUDIBLE_BLOCKS = 10
# Above this Whisper takes a window for silent if its words are improbable too (transcribe.py).
# Beams find probable words in noise, over and over: "a little bit of a little bit of ...". So text
# that zlib makes so much shorter is none either; noise came to 13 and more, speech to 2.5. Both
# must hold: a window of many short prompts came to 0.88, noise to 0.94.
NO_SPEECH = 0.6
LOOPED_COMPRESSION = 5.0
BEAM = 5
"""Beams searched: the recogniser's own errors are worth 1.7 times the time of greedy decoding.

Of the embedded voice's words (25 sentences, 86 s) tiny.en heard 21.1 % wrong with 5 beams, 23.5 %
without; of people's (17 recordings, 100 s) 2.0 and 4.0 %."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was heard. `text` is as Whisper writes it; `chunks` counts the windows it came of."""

    text: str
    chunks: int


@dataclass(frozen=True, slots=True)
class Transcriber:
    """A loaded Whisper. `name` says which; it holds no path."""

    name: str
    model: Whisper

    def transcribe(self, samples: NDArray[np.float32]) -> Transcript:
        """What is said in `samples`, float32 of shape (n,) at 16 kHz with full scale 1.

        A window with less than 0.1 s above -50 dBFS has no words, nor has one in which Whisper
        thinks that there is no speech and finds no words or the same over and over. Samples that
        are no numbers count as 0.

        Raises:
            ValueError: another dtype or shape.
        """
        if samples.ndim != 1 or samples.dtype != np.float32:
            raise ValueError(
                f"samples are {samples.dtype} of shape {samples.shape}; give float32 of (n,) "
                f"at {SAMPLE_RATE} Hz"
            )
        clean = np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0)
        parts = windows(len(clean), SAMPLE_RATE)
        if len(parts) < 2:
            return Transcript(self._text(clean) if parts else "", len(parts))
        _start_alignment()
        words: list[Word] = []
        heard_s = 0.0
        for start, end in parts:
            from_s = start / SAMPLE_RATE
            new = self._words(clean[start:end], from_s)
            words = join(words, new, from_s, heard_s)
            heard_s = end / SAMPLE_RATE
        return Transcript(_spoken(word.text for word in words), len(parts))

    def _words(self, samples: NDArray[np.float32], start_s: float) -> list[Word]:
        """Words of one window that starts at `start_s`."""
        parts = [
            Word(part["word"], start_s + float(part["start"]), start_s + float(part["end"]))
            for segment in self._segments(samples, with_times=True)
            for part in segment["words"]
        ]
        return whole_words(parts)

    def _text(self, samples: NDArray[np.float32]) -> str:
        """Text of one window."""
        segments = self._segments(samples, with_times=False)
        return _spoken("".join(segment["text"] for segment in segments).split())

    def _segments(self, samples: NDArray[np.float32], *, with_times: bool) -> list[dict[str, Any]]:
        """Whisper's segments of at most 30 s.

        It decodes with its timestamps and goes on behind the last one: without them tiny.en ends
        at the first pause of a long window and lost two thirds of 100 s of prompts.
        """
        if is_silent(samples):
            return []
        with warnings.catch_warnings():
            # numpy's, of how openai-whisper 20250625 sorts beams that have no end.
            warnings.filterwarnings("ignore", "__array_wrap__ must accept", DeprecationWarning)
            found = transcribe(
                self.model,
                samples,
                language="en",
                temperature=0.0,
                beam_size=BEAM,
                condition_on_previous_text=False,
                word_timestamps=with_times,
                fp16=self.model.device.type == "cuda",
            )
        segments: list[dict[str, Any]] = found["segments"]  # pyright: ignore[reportAssignmentType]
        return [
            segment
            for segment in segments
            if segment["no_speech_prob"] <= NO_SPEECH
            or segment["compression_ratio"] <= LOOPED_COMPRESSION
        ]


def load_transcriber(location: str, device: str = "cpu") -> Transcriber:
    """The Whisper that `location` names, on `device` ("cpu", "cuda", "cuda:1", ...).

    `location` is "tiny.en-package" (weights of an installed package), a name that openai-whisper
    knows ("large-v3": downloaded once, its checksum verified) or a path of a .pt file of its form.
    On a CPU it computes in fp32 with one thread: two threads on two shared cores took 3.6 s a clip,
    one 0.63 s. On CUDA in fp16.

    Raises:
        ConfigError: no such model, file or device.
        AsrWeightsError: weights are damaged or not of their form.
        AsrDownloadError: they could not be downloaded.
    """
    if torch.device(device).type == "cpu":
        torch.set_num_threads(1)
    name, model = load_weights(location, device)
    with warnings.catch_warnings():
        # It leaves the file of its tokens to the garbage collector, and keeps what it read.
        warnings.simplefilter("ignore", ResourceWarning)
        get_tokenizer(model.is_multilingual, num_languages=model.num_languages)
    return Transcriber(name, model)


@cache
def _start_alignment() -> None:
    """Compile what finds words' times, and take back the threads that this gives torch.

    It is numba's, whose start sets OpenMP, which torch shares, to as many threads as there are
    cores: a window of 30 s then took 2.5 times as long on two shared ones.
    """
    threads = torch.get_num_threads()
    dtw_cpu(np.zeros((1, 1)))
    torch.set_num_threads(threads)


def _spoken(words: Iterable[str]) -> str:
    """The words but those of marks alone: Whisper writes rows of points for noise."""
    return " ".join(word for word in words if any(map(str.isalnum, word)))


def is_silent(samples: NDArray[np.float32]) -> bool:
    """Whether less than 0.1 s of it is audible: 10 ms blocks whose RMS reaches -50 dBFS.

    Whisper writes "you" for silence and for a click. No word is as short as that.
    """
    count = len(samples) // BLOCK_SAMPLES
    blocks = samples[: count * BLOCK_SAMPLES].reshape(count, BLOCK_SAMPLES)
    audible = np.square(blocks, dtype=np.float64).mean(1) >= 10 ** (SILENCE_DBFS / 10)
    return int(audible.sum()) < AUDIBLE_BLOCKS


def whole_words(parts: Sequence[Word]) -> list[Word]:
    """Words as they are set between spaces, of parts whose text starts with a space where they do.

    Whisper's alignment has punctuation and what follows a hyphen as parts of their own.
    """
    words: list[Word] = []
    for part in parts:
        if not part.text.strip():
            continue
        if words and not part.text.startswith(" "):
            last = words[-1]
            words[-1] = Word(last.text + part.text.rstrip(), last.start_s, part.end_s)
        else:
            words.append(Word(part.text.strip(), part.start_s, part.end_s))
    return words
