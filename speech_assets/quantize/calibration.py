"""The base model's own generations: what calibrates quantized checkpoints, and what judges them.

Two files of JSON lines, `calibration/calibration.jsonl.zst` and `calibration/held_out.jsonl.zst`,
one generation a line, and `calibration/record.json`, written last, that says what they were made
of. The two share no sentence, with each other or with what else the project measures by.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import zstandard

from server.sentences import SentenceCutter
from speech_assets.errors import SpeechAssetsError
from speech_assets.quality.sentences import QUALITY_SENTENCES
from speech_assets.sentences import SENTENCES
from speech_assets.voice.held_out import TEXTS as VOICE_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from resources.store import Store
    from server.frames import TokenLayout

CALIBRATION_KEY = "calibration/calibration.jsonl.zst"
HELD_OUT_KEY = "calibration/held_out.jsonl.zst"
RECORD_KEY = "calibration/record.json"
CODE_VERSION = "1"  # Bump when other generations would come of the same model and texts.
SCHEMA_VERSION = 1
MAX_TOKENS = 1_200
"""Of a generation, unless another number is asked for: 14.6 s, no text here takes longer."""
_REMEDY = "materialize calibration again"
_COMPRESSION = 10  # zstd's level; 128 generations take 0.2 MB.


class CalibrationError(SpeechAssetsError):
    """Generations are missing, damaged, of another model, or of texts that overlap."""


@dataclass(frozen=True, slots=True)
class SpokenText:
    """A text as the base model spoke it, one generation.

    Ids are the model's, without end_of_speech. `sampling` has temperature, top_p,
    repetition_penalty and max_tokens.
    """

    id: str
    text: str
    voice: str
    seed: int
    sampling: Mapping[str, float]
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: str

    def scored_ids(self, layout: TokenLayout) -> tuple[int, ...]:
        """The ids that the model chose: `token_ids`, and end_of_speech where it ended by itself."""
        end = (layout.end_of_speech,) if self.finish_reason == "stop" else ()
        return (*self.token_ids, *end)


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """What the two files were made of, and how much they hold.

    `sha256` is of each file by its key; `engine` says what generated and decides nothing.
    """

    base: str
    base_weights_sha256: str
    texts_sha256: str
    sampling: Mapping[str, float]
    engine: Mapping[str, Any]
    rows: int
    held_out_rows: int
    tokens: int
    held_out_tokens: int
    sha256: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION
    code_version: str = CODE_VERSION


@dataclass(frozen=True, slots=True)
class SharedSentence:
    """A sentence that a text of one set shares with a text of another."""

    sentence: str
    first: str
    second: str


def shared_sentences(first: Iterable[str], second: Iterable[str]) -> list[SharedSentence]:
    """Sentences that texts of `first` share with texts of `second`, wherever in a text they stand.

    Case, punctuation and white space do not count.
    """
    of_second: dict[str, str] = {}
    for text in second:
        for sentence in _sentences(text):
            of_second.setdefault(_plain(sentence), text)
    return [
        SharedSentence(sentence, text, of_second[plain])
        for text in first
        for sentence in _sentences(text)
        if (plain := _plain(sentence)) in of_second
    ]


def text_sets(calibration: Sequence[str], held_out: Sequence[str]) -> dict[str, Sequence[str]]:
    """The sets of texts that must be apart, by name: these two, and what quality is measured by."""
    return {
        "the calibration texts": calibration,
        "the held-out texts": held_out,
        "the sentences of speech_assets/sentences.py": SENTENCES,
        "the sentences of speech_assets/quality/sentences.py": [
            sentence.text for sentence in QUALITY_SENTENCES
        ],
        "the texts of speech_assets/voice/held_out.py": VOICE_TEXTS,
    }


def check_apart(sets: Mapping[str, Sequence[str]]) -> None:
    """Do nothing, if no two of the named sets of texts share a sentence.

    Raises:
        CalibrationError: two do.
    """
    for (name, texts), (other, others) in itertools.combinations(sets.items(), 2):
        if found := shared_sentences(texts, others):
            shared = found[0]
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise CalibrationError(
                f"{name} and {other} share the sentence {shared.sentence!r}{more} (in "
                f"{_start(shared.first)!r} and {_start(shared.second)!r}), so that checkpoints "
                "would be judged by what they were made with; replace one of the texts"
            )


def texts_sha256(*sets: Sequence[str]) -> str:
    """Hash of sets of texts, in their order."""
    return hashlib.sha256(json.dumps([list(texts) for texts in sets]).encode()).hexdigest()


def pack_generations(rows: Iterable[SpokenText]) -> bytes:
    """The rows as a file's bytes: JSON lines in zstd, the same bytes for the same rows."""
    lines = [json.dumps(asdict(row), ensure_ascii=False, separators=(",", ":")) for row in rows]
    text = "".join(f"{line}\n" for line in lines)
    return zstandard.ZstdCompressor(level=_COMPRESSION, write_checksum=True).compress(
        text.encode("utf-8")
    )


def read_generations(store: Store, key: str) -> list[SpokenText]:
    """The generations of the file `key`, in its order.

    Raises:
        CalibrationError: there is none, or it is damaged.
    """
    path = store.path(key)
    try:
        packed = store.read_bytes(key)
    except FileNotFoundError as error:
        raise CalibrationError(f"{path} is missing; materialize calibration first") from error
    rows: list[SpokenText] = []
    try:
        # Whole, and not by a stream: that gives the half of a file without a word.
        text = zstandard.ZstdDecompressor().decompress(packed).decode("utf-8")
        # Not splitlines: JSON leaves line separators of Unicode in a text as they are.
        for line in filter(None, text.split("\n")):
            rows.append(_row(json.loads(line)))
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        raise CalibrationError(
            f"{path}: damaged at generation {len(rows) + 1} ({type(error).__name__}: {error}); "
            f"{_REMEDY}"
        ) from error
    return rows


def read_record(store: Store) -> CalibrationRecord:
    """What the files in the store were made of.

    Raises:
        CalibrationError: there is no record, it is damaged, or of another version.
    """
    path = store.path(RECORD_KEY)
    if not store.exists(RECORD_KEY):
        raise CalibrationError(f"{path} is missing; materialize calibration first")
    value = store.read_json(RECORD_KEY)
    try:
        if value["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {value['schema_version']}, not {SCHEMA_VERSION}")
        return CalibrationRecord(**value)
    except (KeyError, TypeError, ValueError) as error:
        raise CalibrationError(
            f"{path}: no record of calibration ({type(error).__name__}: {error}); {_REMEDY}"
        ) from error


def check_files(store: Store, record: CalibrationRecord) -> None:
    """Do nothing, if both files are those that the record was written with.

    Raises:
        CalibrationError: one is missing or has other bytes.
    """
    for key in (CALIBRATION_KEY, HELD_OUT_KEY):
        if not store.exists(key):
            raise CalibrationError(f"{store.path(key)} is missing; {_REMEDY}")
        if hashlib.sha256(store.read_bytes(key)).hexdigest() != record.sha256.get(key):
            raise CalibrationError(
                f"{store.path(key)} is not the file that {RECORD_KEY} was written with; {_REMEDY}"
            )


def check_base(store: Store, record: CalibrationRecord, base_sha256: str, base: object) -> None:
    """Do nothing, if the generations are of the base model with that hash, which is at `base`.

    Raises:
        CalibrationError: they are of another one.
    """
    if record.base_weights_sha256 != base_sha256:
        raise CalibrationError(
            f"{store.path(RECORD_KEY)}: the generations are of another base model ({record.base}, "
            f"{record.base_weights_sha256[:12]}) than {base} ({base_sha256[:12]}); {_REMEDY} for it"
        )


def _row(value: dict[str, Any]) -> SpokenText:
    value["prompt_ids"], value["token_ids"] = tuple(value["prompt_ids"]), tuple(value["token_ids"])
    row = SpokenText(**value)
    numbers = cast("tuple[object, ...]", (row.seed, *row.prompt_ids, *row.token_ids))
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError("an id or seed is not a whole number from 0")
    if not row.prompt_ids or not row.token_ids:
        raise ValueError(f"generation {row.id} is empty")
    return row


def _sentences(text: str) -> list[str]:
    """The sentences of a text; each line is cut by itself."""
    found: list[str] = []
    for line in text.splitlines():
        cutter = SentenceCutter("sentence")
        found += [*cutter.feed(line), cutter.flush()]
    return [sentence for sentence in found if _plain(sentence)]


def _plain(sentence: str) -> str:
    """A sentence's words alone: "It's 5, now!" and "its  5 now" are one."""
    text = unicodedata.normalize("NFKC", sentence).casefold()
    return " ".join(re.findall(r"\w+", re.sub(r"['\u2019]", "", text)))


def _start(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
