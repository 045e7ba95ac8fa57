"""The folder in which a corpus' downloads stay, and what the operating system has against it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from resources.errors import DownloadError
from server.presets import DEFAULT_STORE

if TYPE_CHECKING:
    from resources.store import Store
    from speech_assets.profiles import Corpus

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNFIT = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP),
)


def download_folder(corpus: Corpus, store: Store) -> Path:
    """Where a corpus' downloads lie: `path` of its row, else beside what is made."""
    if corpus.path:
        return Path(corpus.path)
    root = Path(store.path("")) if store.is_local else Path(DEFAULT_STORE).resolve()
    return root / "downloads" / corpus.name / corpus.origin


def refusal(corpus: Corpus, folder: Path, error: OSError) -> DownloadError:
    """What the operating system has against `folder`, or a file in it, in one line."""
    place = error.filename or folder
    said = f"{place}: {error.strerror or error}"
    if error.errno in _FULL:
        return DownloadError(f"{said}; free space, then run again: what was received is kept")
    if error.errno in _UNFIT:
        what = f"corpora.{corpus.name}.path" + " or SPEECH_STORE" * (not corpus.path)
        return DownloadError(
            f"{said}; downloads of {corpus.name} lie in {folder}: give {what} a folder that this "
            "user can write"
        )
    return DownloadError(f"{said}; check the disk, then run again: what was received is kept")
