"""Raw rows of an arm: what it said and what that cost, before anything is compared.

They and their WAVs are kept in the store, `ab/<comparison>/<run>/`, each arm's rows in a file of
their own. A result names both files by key and hash; whoever compares, or shows a result, reads
them again and finds them as they were written, or finds nothing to compare.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resources.errors import StoreError
from resources.process import is_gone, process_name
from server.wav import HEADER_BYTES
from speech_assets.ab.arm import LETTERS
from speech_assets.ab.errors import AskError, VoidError
from speech_assets.ab.plan import texts_sha256

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resources.store import Store
    from speech_assets.ab.arm import Letter

SCHEMA_VERSION = 1
_OWNER = "owner.json"


@dataclass(frozen=True, slots=True)
class RawRow:
    """A clip of one arm. `file` is its WAV, empty where the model gave no audio; see `Answer`.

    `position` is the number of the request among all of both arms, from 0; warm-ups have none.
    `ran_s` and `waited_s` are of the server's threads: on cores, and for want of one; None where
    the system did not tell, or an earlier version did not ask.
    """

    sentence_id: int
    kind: str
    seed: int
    text: str
    position: int
    file: str
    file_sha256: str
    samples: int
    frames: int
    finish_reason: str
    wall_ms: float
    first_audio_ms: float | None
    lm_ms: float
    lm_steps: int
    decode_ms: float
    decode_calls: int
    ran_s: float | None = None
    waited_s: float | None = None

    @property
    def place(self) -> tuple[int, int]:
        """By what the other arm's clip is found: sentence and seed."""
        return self.sentence_id, self.seed


@dataclass(frozen=True, slots=True)
class RawArm:
    """All of one arm: what it is, and its rows.

    `memory_mib` is the largest of its servers, of what `memory_of` says; None where nothing is.
    """

    arm: Letter
    label: str
    preset: str
    settings: Mapping[str, Any]
    config_sha256: str
    weights: Mapping[str, str]
    engine: Mapping[str, Any]
    unchecked: bool
    warmup_clips: int
    memory_mib: float | None
    memory_measure: str
    rows: tuple[RawRow, ...]

    @property
    def texts_sha256(self) -> str:
        """Hash of its sentences."""
        return texts_sha256((row.sentence_id, row.text) for row in self.rows)


@contextlib.contextmanager
def run_folder(store: Store, name: str, run: str) -> Generator[str]:
    """Key of a fresh folder `ab/<name>/<run>`; what killed runs of this machine left is removed.

    Raises:
        AskError: another run of the same began in the same second.
    """
    for owner in [key for key in store.keys("ab") if key.endswith(f"/{_OWNER}")]:
        with contextlib.suppress(FileNotFoundError):
            if is_gone(str(store.read_json(owner)["process"])):
                _remove(store, owner.removesuffix(f"/{_OWNER}"))
    folder = f"ab/{name}/{run}"
    if store.keys(folder):
        raise AskError(f"{store.path(folder)} is of another run; run it again", retryable=True)
    store.write_json(f"{folder}/{_OWNER}", {"process": process_name()})
    try:
        yield folder
    except BaseException:  # Half of a comparison is none.
        with contextlib.suppress(StoreError):
            _remove(store, folder)
        raise
    store.delete(f"{folder}/{_OWNER}")


def write_raw(store: Store, folder: str, arm: RawArm) -> dict[str, str]:
    """Keep an arm's rows; what a result names them by: their key and hash."""
    key = f"{folder}/{arm.arm}.json"
    value = {"schema_version": SCHEMA_VERSION, "texts_sha256": arm.texts_sha256, **asdict(arm)}
    data = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    store.write_bytes(key, data.encode() + b"\n")
    return {"key": key, "sha256": hashlib.sha256(data.encode() + b"\n").hexdigest()}


def read_raw(store: Store, letter: Letter, reference: Mapping[str, str]) -> RawArm:
    """An arm's rows as they were written.

    Raises:
        VoidError: they are not there, or not what was written.
    """
    data = _checked(store, reference["key"], reference["sha256"], f"arm {letter.upper()}")
    try:
        value: dict[str, Any] = json.loads(data)
        if value.pop("schema_version") != SCHEMA_VERSION or value["arm"] != letter:
            raise ValueError(f"arm {value['arm']!r}, or another version")
        named = value.pop("texts_sha256")
        value["rows"] = tuple(RawRow(**row) for row in value["rows"])
        arm = RawArm(**value)
    except (ValueError, KeyError, TypeError) as error:
        raise VoidError(
            f"{store.path(reference['key'])}: no raw rows of arm {letter.upper()} ({error}); "
            "compare again"
        ) from error
    if arm.texts_sha256 != named:
        raise VoidError(
            f"{store.path(reference['key'])}: its sentences are not of its hash; compare again"
        )
    return arm


def check_pair(a: RawArm, b: RawArm, asked: Sequence[tuple[int, int]]) -> None:
    """Nothing, if both arms have the same clips, each of `asked` (sentence, seed) once.

    Raises:
        VoidError: a clip is missing, too many, or of another text.
    """
    for arm in (a, b):
        places = [row.place for row in arm.rows]
        where = f"arm {arm.arm.upper()} ({arm.label})"
        if not places:
            raise VoidError(f"{where} has no raw rows: there is nothing to compare; compare again")
        if missing := sorted(set(asked) - set(places)):
            raise VoidError(f"{where} has no raw row of {_named(missing[0])}; compare again")
        if len(places) != len(set(places)) or set(places) - set(asked):
            other = sorted(set(places) - set(asked))
            what = f"one of {_named(other[0])}, which was not asked" if other else "one twice"
            raise VoidError(f"{where}: among its raw rows is {what}; compare again")
    if a.texts_sha256 != b.texts_sha256:
        raise VoidError(
            f"the arms were asked for other sentences (hash {a.texts_sha256[:12]} and "
            f"{b.texts_sha256[:12]}); compare again"
        )


def pcm_of(store: Store, row: RawRow) -> NDArray[np.int16]:
    """The clip's samples, int16 of shape (samples,) at 24 kHz; empty where there was no audio.

    Raises:
        VoidError: the file is not there, or not what was written.
    """
    if not row.file:
        return np.zeros(0, np.int16)
    data = _checked(store, row.file, row.file_sha256, _named(row.place))
    return np.frombuffer(data[HEADER_BYTES:], "<i2").astype(np.int16, copy=False)


def read_pair(store: Store, config: Mapping[str, Any]) -> tuple[RawArm, RawArm]:
    """Both arms' rows of a result, whose `config` names them; every WAV is checked, too.

    Raises:
        VoidError: a file is missing, was changed, or is of other clips than the result says.
    """
    a, b = (read_raw(store, letter, config["raw"][letter]) for letter in LETTERS)
    check_pair(a, b, [(int(sentence), int(seed)) for sentence, seed in config["asked"]])
    if a.texts_sha256 != config["texts_sha256"]:
        where = store.path(config["raw"]["a"]["key"])
        raise VoidError(f"{where}: not the sentences of the result; compare again")
    for arm in (a, b):
        for row in arm.rows:
            pcm_of(store, row)
    return a, b


def _checked(store: Store, key: str, sha256: str, what: str) -> bytes:
    try:
        data = store.read_bytes(key)
    except (FileNotFoundError, StoreError) as error:
        raise VoidError(
            f"{store.path(key)}, {what}, cannot be read ({error}); without it there is nothing to "
            "compare: compare again"
        ) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise VoidError(f"{store.path(key)}, {what}, is not what was measured; compare again")
    return data


def _named(place: tuple[int, int]) -> str:
    return f"sentence {place[0]} with seed {place[1]}"


def _remove(store: Store, folder: str) -> None:
    if store.is_local:
        shutil.rmtree(Path(store.path(folder)), ignore_errors=True)
        return
    for key in store.keys(folder):
        store.delete(key)
