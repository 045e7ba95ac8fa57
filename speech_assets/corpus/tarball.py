"""Clips of a LibriTTS-R archive, read once as a stream: nothing is unpacked.

Members are `LibriTTS_R/<split>/<speaker>/<chapter>/<id>` with `.wav`, `.normalized.txt` and
`.original.txt` behind; `<id>` begins with speaker and chapter. A member's bytes go to one file, the
spool; what stays in memory is where they lie, some 400 bytes a clip. Order within the archive does
not matter.
"""

from __future__ import annotations

import gzip
import sys
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from speech_assets.corpus.tar_members import open_members
from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from speech_assets.corpus.tar_members import TarMembers

CODE_VERSION = "2"
ROOT = "LibriTTS_R"
# What is larger is none of a corpus of sentences, and would be held in memory: 30 minutes, 1 MiB.
LARGEST_WAV_BYTES = 30 * 60 * 24_000 * 2
LARGEST_TEXT_BYTES = 1 << 20
# Texts without a wav are known (lhotse's recipe passes them over), their number is not. The hub has
# 74 of LibriTTS' 116,500 clips of train-clean-360 less: 0.6 in 1,000, the largest gap of them all.
# A layout that this code does not know would leave far more without a partner.
LARGEST_SHARE_ALONE = 0.002
_REPORT_EVERY = 10_000

Part = Literal["wav", "normalized", "original"]
_SUFFIXES: dict[str, Part] = {
    ".wav": "wav",
    ".normalized.txt": "normalized",
    ".original.txt": "original",
}


@dataclass(slots=True)
class SpooledClip:
    """Where the parts of one clip lie in the spool, as (first byte, bytes)."""

    folder: str
    wav: tuple[int, int] | None = None
    normalized: tuple[int, int] | None = None
    original: tuple[int, int] | None = None


@dataclass(slots=True)
class SpooledSplit:
    """The clips of an archive by id, and what was passed over."""

    spool: Path
    source: str
    licence: str
    clips: dict[str, SpooledClip] = field(default_factory=dict[str, SpooledClip])
    no_text: set[str] = field(default_factory=set[str])
    """Ids of clips with a text that is no UTF-8."""
    other_files: int = 0
    """Tables of chapters, lists of speakers, and what macOS adds (`._NAME`)."""

    def without_audio(self) -> list[str]:
        """Ids of texts without a wav."""
        return sorted(id_ for id_, clip in self.clips.items() if clip.wav is None)

    def without_text(self) -> list[str]:
        """Ids of wavs without a normalized text."""
        return sorted(
            id_ for id_, clip in self.clips.items() if clip.wav and clip.normalized is None
        )

    def rows(self, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Rows of the archive schema, for `ids` in their order."""
        with self.spool.open("rb") as file:
            for id_ in ids:
                clip = self.clips[id_]
                path = f"{clip.folder}/{id_}.wav"
                speaker, chapter = PurePosixPath(clip.folder).parts[-2:]
                normalized = _text(file, clip.normalized)
                yield {
                    "audio": {"bytes": _bytes(file, clip.wav), "path": path},
                    "path": path,
                    "id": id_,
                    "speaker_id": speaker,
                    "chapter_id": chapter,
                    "text_normalized": normalized,
                    "text_original": _text(file, clip.original) or normalized,
                    "source": self.source,
                    "licence": self.licence,
                }


def spool_archive(
    archive: Path,
    split: str,
    spool: Path,
    *,
    source: str,
    licence: str,
    report: Callable[[str], None],
) -> SpooledSplit:
    """Read `archive` once, its parts into the file `spool`.

    Raises:
        CorpusError: it is damaged, or has members that an archive of this split cannot have.
    """
    spooled = SpooledSplit(spool, source, licence)
    after = "at its beginning"
    try:
        with open_members(archive) as members, spool.open("wb") as out:
            for info in members:
                _take(members, info, archive, split, spooled, out, report)
                name = info.name if info.name.isprintable() else ascii(info.name)
                after = f"after member {name}"
    except EOFError as error:
        raise CorpusError(
            f"{archive} ends early, {after}; delete it to download it anew"
        ) from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(
            f"{archive} is damaged {after}: {error}; delete it to download it anew, or take "
            "another mirror"
        ) from error
    _check_pairs(spooled, archive, split, report)
    return spooled


def _take(
    members: TarMembers,
    info: tarfile.TarInfo,
    archive: Path,
    split: str,
    spooled: SpooledSplit,
    out: BinaryIO,
    report: Callable[[str], None],
) -> None:
    path = _safe_path(info, archive)
    suffix = next((suffix for suffix in _SUFFIXES if path.name.endswith(suffix)), "")
    if info.isdir() or not suffix or path.name.startswith("._"):
        spooled.other_files += info.isfile()
        return
    if not info.name.isprintable():  # Bytes that are no UTF-8, which a shard cannot hold, too.
        raise CorpusError(f"{archive}: member {info.name!r} has a name that is no text; refused")
    part, id_, parts = _SUFFIXES[suffix], path.name.removesuffix(suffix), path.parts
    prefix = "_".join(parts[2:4]) + "_"
    if len(parts) != 5 or parts[:2] != (ROOT, split) or not id_.startswith(prefix):
        raise CorpusError(
            f"{archive}: member {info.name} is not {ROOT}/{split}/SPEAKER/CHAPTER/"
            "SPEAKER_CHAPTER_...; is this the archive of that split?"
        )
    largest = LARGEST_WAV_BYTES if part == "wav" else LARGEST_TEXT_BYTES
    if info.size > largest:
        raise CorpusError(
            f"{archive}: member {info.name} has {info.size} bytes, at most {largest} are taken"
        )
    clip = spooled.clips.setdefault(id_, SpooledClip(sys.intern(path.parent.as_posix())))
    if getattr(clip, part) is not None:
        raise CorpusError(
            f"{archive}: id {id_} is there twice ({info.name}); an archive has each once"
        )
    data = members.read(info)
    if part != "wav" and _decoded(data) is None:
        spooled.no_text.add(id_)
    setattr(clip, part, (out.tell(), len(data)))
    out.write(data)
    if part == "wav" and len(spooled.clips) % _REPORT_EVERY == 0:
        report(f"{archive.name}: {len(spooled.clips)} clips read")


def _safe_path(info: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """The path of a member that is a plain file or folder below the archive's root.

    Nothing is unpacked, but an archive that tries to get out is not one to be trusted.
    """
    path = PurePosixPath(info.name)
    if path.is_absolute() or ".." in path.parts or "\0" in info.name:
        raise CorpusError(f"{archive}: member {info.name!r} leads out of the archive; refused")
    if not (info.isfile() or info.isdir()) or info.issparse():
        kind = "a link" if info.issym() or info.islnk() else "no plain file"
        raise CorpusError(f"{archive}: member {info.name!r} is {kind}; refused")
    return path


def _check_pairs(
    spooled: SpooledSplit, archive: Path, split: str, report: Callable[[str], None]
) -> None:
    """A few clips without a partner are rows for the quarantine; many are another layout."""
    if not spooled.clips:
        raise CorpusError(f"{archive} holds no clip of split {split}; is this its archive?")
    for alone, what in (
        (spooled.without_audio(), "a text without a wav"),
        (spooled.without_text(), "a wav without a normalized text"),
        (sorted(spooled.no_text), "a text that is no UTF-8"),
    ):
        if not alone:
            continue
        said = f"{archive}: {len(alone)} of {len(spooled.clips)} ids have {what}, first {alone[0]}"
        if len(alone) > LARGEST_SHARE_ALONE * len(spooled.clips):
            raise CorpusError(
                f"{said}; at most {LARGEST_SHARE_ALONE:.1%} may: delete it to download it anew, or "
                "take origin hub"
            )
        report(f"{said}; speech sets them aside")


def _bytes(file: BinaryIO, place: tuple[int, int] | None) -> bytes | None:
    if place is None:
        return None
    file.seek(place[0])
    return file.read(place[1])


def _text(file: BinaryIO, place: tuple[int, int] | None) -> str | None:
    data = _bytes(file, place)
    return None if data is None else _decoded(data)


def _decoded(data: bytes) -> str | None:
    """A text without the line end behind it and without a mark of its encoding before it.

    None where it is no UTF-8 (latin-1, UTF-16): what would be trained on is not what was said.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.strip()
