"""One large file from a server: whole and as it was observed, or not at all, and gone on with.

While it is received, `NAME.part` holds its first bytes and `NAME.part.json` says whose they are. A
process that was killed leaves both, and the next asks for the rest (Range) of that very content
(If-Range). Bytes of two files never meet in one, but where a checksum is known that judges it.
"""

from __future__ import annotations

import errno
import hashlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import filelock

from resources.errors import DownloadError
from resources.network import open_client
from resources.part import delete_note, delete_part, is_noted, part_of, why_foreign, write_note
from resources.patience import LEAST_BYTES, Patience
from resources.remote import PassingError, RemoteFile, pause
from resources.transfer import Transfer
from server.files import sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LONG_BYTES = 1 << 30  # Read for its checksum in more than a few seconds.
_REPORT_EVERY_S = 30.0  # Each line is a row in Dagster's history.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A whole file on this machine. `md5` is of the bytes as they lie there."""

    path: Path
    size_bytes: int
    md5: str
    received_bytes: int
    """Bytes that came over the network this time."""


def download(
    wanted: RemoteFile,
    target: Path,
    *,
    md5: str | None,
    report: Callable[[str], None],
    patience: Patience,
) -> Downloaded:
    """`wanted` as the file `target`, which appears only when it is whole.

    `md5` is 32 hex digits, None where nobody published it.

    Raises:
        ChangedError: the server has other content now than `wanted` describes.
        DownloadError: it cannot be had; `NAME.part` is kept unless its bytes are wrong.
    """
    if md5 is not None and not re.fullmatch(r"[0-9a-f]{32}", md5 := md5.lower()):
        raise DownloadError(
            f"{wanted.url}: md5 {md5!r} is not 32 hex digits; correct the catalogue"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(target.with_name(f".{target.name}.lock"), timeout=0)
    try:
        with lock:
            return _download(wanted, target, md5, report, patience)
    except filelock.Timeout as error:
        raise DownloadError(
            f"{target} is being downloaded by another process; wait for it, then run again",
            retryable=True,
        ) from error
    except OSError as error:
        if error.errno not in _FULL:
            raise DownloadError(
                f"{target} cannot be written: {error.strerror or error}; check the folder"
            ) from error
        raise DownloadError(
            f"{part_of(target)}: the disk is full; free space and run again, what was received is "
            "kept"
        ) from error


def _download(
    wanted: RemoteFile,
    target: Path,
    md5: str | None,
    report: Callable[[str], None],
    patience: Patience,
) -> Downloaded:
    part = part_of(target)
    if target.is_dir():
        raise DownloadError(
            f"{target} is a folder, and the file of that name is to go there; move it away"
        )
    if target.exists():
        if wanted.size_bytes not in (None, target.stat().st_size):
            raise DownloadError(
                f"{target} has {target.stat().st_size} bytes, {wanted.url} {wanted.size_bytes}; "
                "delete it to download it anew"
            )
        found = _md5_of(target, report)
        if md5 not in (None, found):
            raise DownloadError(
                f"{target}: md5 is {found}, must be {md5}; it was there before: delete it to "
                "download it anew"
            )
        if is_noted(part):
            report(f"{part.name}: deleted, as {target.name} is here")
            delete_part(part)
        return Downloaded(target, target.stat().st_size, found, 0)
    if part.exists() and (why := why_foreign(part, wanted, md5)) is not None:
        report(f"{part.name}: {part.stat().st_size} bytes are deleted: {why}")
        part.unlink()
    write_note(part, wanted, md5)
    part.touch()
    progress = _Progress(target.name, wanted.size_bytes, report)
    with open_client(patience) as client:
        transfer = Transfer(
            client,
            wanted,
            part,
            judged=md5 is not None,
            patience=patience,
            report=report,
            at=progress.at,
        )
        furthest, failures = transfer.held_bytes, 0
        while not transfer.is_whole:
            try:
                transfer.go_on()
                break
            except PassingError as error:
                failures += 1
                # By how far it ever was: what is received twice is no progress.
                if transfer.held_bytes >= furthest + LEAST_BYTES:
                    furthest, failures = transfer.held_bytes, 1
                pause(patience, failures, error, wanted.url, report)
    found = _md5_of(part, report)
    if md5 not in (None, found):
        delete_part(part)
        raise DownloadError(
            f"{wanted.url}: md5 is {found}, must be {md5}; the {part.name} was deleted, run again "
            "to download it anew, or take another mirror"
        )
    sync(part)
    part.rename(target)
    delete_note(part)
    sync(target.parent)
    size_bytes = target.stat().st_size
    report(f"{target.name}: whole, {size_bytes} bytes, md5 {found}")
    return Downloaded(target, size_bytes, found, transfer.received_bytes)


def _md5_of(path: Path, report: Callable[[str], None]) -> str:
    size_bytes = path.stat().st_size
    if size_bytes >= _LONG_BYTES:
        report(f"{path.name}: reading {size_bytes / 1e9:.2f} GB for the checksum")
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


class _Progress:
    """A line every half minute: bytes, share and speed."""

    def __init__(self, name: str, size_bytes: int | None, report: Callable[[str], None]) -> None:
        self._name = name
        self._size_bytes = size_bytes
        self._report = report
        self._last: tuple[float, int] | None = None

    def at(self, byte: int) -> None:
        now_s = time.monotonic()
        if self._last is None or byte < self._last[1]:
            self._last = (now_s, byte)
            return
        past_s = now_s - self._last[0]
        if past_s < _REPORT_EVERY_S:
            return
        speed_mb = (byte - self._last[1]) / past_s / 1e6
        whole = f" of {self._size_bytes / 1e9:.2f}" if self._size_bytes else ""
        share = f" ({byte / self._size_bytes:.0%})" if self._size_bytes else ""
        self._report(f"{self._name}: {byte / 1e9:.2f}{whole} GB{share}, {speed_mb:.1f} MB/s")
        self._last = (now_s, byte)
