"""Files of a data set on the hub, at one revision. `HF_ENDPOINT` and `HF_TOKEN` apply."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from resources.errors import DownloadError
from resources.hub_client import patiently, plain_http

if TYPE_CHECKING:
    from collections.abc import Callable

    from huggingface_hub.hf_api import DatasetInfo

    from resources.patience import Patience

_DEFAULT_ENDPOINT = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a revision; `sha256` is None for a file that the hub keeps in git itself."""

    path: str
    size_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Repository:
    """A data set's repository at a revision: the hash of a commit, or a branch."""

    name: str
    revision: str
    endpoint: str = ""

    @property
    def address(self) -> str:
        """Where the hub is: the corpus row's, HF_ENDPOINT's, or the public one."""
        return (self.endpoint or os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")

    def __str__(self) -> str:
        return f"{self.address}/datasets/{self.name}@{self.revision}"


def commit_of(repository: Repository, patience: Patience, report: Callable[[str], None]) -> str:
    """Hash of the commit that the repository's revision is now.

    Raises:
        DownloadError: the hub refused, or could not be reached.
    """
    found = _described(repository, patience, report).sha
    if not found:
        raise DownloadError(f"{repository}: the hub tells no commit; write one into the catalogue")
    return found


def list_files(
    repository: Repository, folder: str, patience: Patience, report: Callable[[str], None]
) -> list[HubFile]:
    """Parquet files directly in `folder`, by name.

    Raises:
        DownloadError: the hub refused, could not be reached, or has none there.
    """
    siblings = _described(repository, patience, report, with_files=True).siblings
    files: list[HubFile] = []
    for entry in siblings or []:
        if entry.rfilename.rpartition("/")[0] != folder or not entry.rfilename.endswith(".parquet"):
            continue
        sha256 = entry.lfs.sha256 if entry.lfs else None
        if entry.size is None or not re.fullmatch(r"[0-9a-f]{64}", sha256 or "0" * 64):
            raise DownloadError(
                f"{repository}: {entry.rfilename} has size {entry.size} and sha256 {sha256}, which "
                "no file has; check the address of the hub"
            )
        files.append(HubFile(entry.rfilename, entry.size, sha256))
    if not files:
        raise DownloadError(f"{repository}: {folder} holds no parquet file; check the catalogue")
    return sorted(files, key=lambda file: file.path)


def _described(
    repository: Repository,
    patience: Patience,
    report: Callable[[str], None],
    *,
    with_files: bool = False,
) -> DatasetInfo:
    """What the hub says of a revision. (Its listing of a folder knows no limit of time.)"""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=repository.address)
    return patiently(
        str(repository),
        patience,
        report,
        lambda: api.dataset_info(
            repository.name,
            revision=repository.revision,
            files_metadata=with_files,
            timeout=patience.read_s,
        ),
    )


def remove_incomplete(folder: Path, of: str) -> None:
    """Delete what killed processes left of files of the hub's folder `of`, downloaded to `folder`.

    The hub's client does not go on with it, and each would take the room of a file for good.
    """
    for part in (folder / ".cache" / "huggingface" / "download" / of).glob("*.incomplete"):
        part.unlink(missing_ok=True)


def fetch_file(
    repository: Repository,
    file: HubFile,
    folder: Path,
    patience: Patience,
    report: Callable[[str], None],
) -> Path:
    """`file` below `folder`, whole: its size and checksum are the listing's.

    A file that is there already is kept, also when it is another: it may be the user's own. The
    hub's client resumes within a process; one that was killed begins this file (some 500 MB) again,
    and keeps those that were whole.

    Raises:
        DownloadError: the hub refused, could not be reached, or sent something else; or another
            file is there.
    """
    from huggingface_hub import hf_hub_download

    place = PurePosixPath(file.path)
    if place.is_absolute() or ".." in place.parts or re.search(r"[\\\0]", file.path):
        raise DownloadError(
            f"{repository}: {file.path!r} leads out of the data set's folder; check the address of "
            "the hub"
        )
    path = folder / file.path
    if path.exists():
        if (fault := _fault(file, path)) is not None:
            raise DownloadError(
                f"{path}: {fault} as at {repository}; it was there before: move it away, or give "
                "another corpora.NAME.path"
            )
        return path
    with plain_http():
        patiently(
            str(repository),
            patience,
            report,
            lambda: hf_hub_download(
                repository.name,
                file.path,
                repo_type="dataset",
                revision=repository.revision,
                local_dir=folder,
                endpoint=repository.address,
            ),
            folder,
        )
    if (fault := _fault(file, path)) is not None:
        path.unlink()
        raise DownloadError(
            f"{repository}: {file.path}: {fault}; the file was deleted, run again to download it "
            "anew"
        )
    report(f"{path.name}: {file.size_bytes / 1e6:.0f} MB are here")
    return path


def _fault(file: HubFile, path: Path) -> str | None:
    """How the file at `path` differs from the listing, None when it does not."""
    size_bytes = path.stat().st_size
    if size_bytes != file.size_bytes:
        return f"it has {size_bytes} bytes, must have {file.size_bytes}"
    if file.sha256 is not None:
        with path.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != file.sha256:
            return f"sha256 is {found}, must be {file.sha256}"
    return None
