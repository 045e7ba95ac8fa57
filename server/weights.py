"""Where weights come from: a local folder, or a hub repository pinned to a revision."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from server.errors import ConfigurationError, WeightsError, shown
from server.files import user_path
from server.noted_hashes import hash_of, read_notes

if TYPE_CHECKING:
    from collections.abc import Collection

CODEC_WEIGHTS = ["pytorch_model.bin", "model.safetensors"]  # One of them, the first that is there.
CODEC_FILES = ["config.json", *CODEC_WEIGHTS]
_LARGE_BYTES = 64 << 20
"""A file above it enters a fingerprint by a hash of its own, which can be noted and used again."""
MODEL_FILES = [
    *("config.json", "generation_config.json", "layout.json", "packed.json"),
    *("tokenizer.json", "tokenizer_config.json", "*.safetensors", "model.safetensors.index.json"),
]
_REPOSITORY = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class WeightsLocation:
    """A folder on this machine (`folder`), or a hub repository at a revision."""

    folder: Path | None = None
    repository: str = ""
    revision: str = ""

    def __str__(self) -> str:
        return str(self.folder) if self.folder else f"{self.repository}@{self.revision}"

    @property
    def is_pinned(self) -> bool:
        """Whether it names the same weights for ever, as far as a name can: no branch, no tag."""
        return self.folder is not None or _COMMIT.fullmatch(self.revision) is not None

    def commit(self, found: Path) -> str | None:
        """The commit of a hub repository whose files are in the folder `found`.

        The hub's cache has each commit in a folder of its name. None for a folder, and where the
        cache does not say.
        """
        if self.folder is not None:
            return None
        return found.name if _COMMIT.fullmatch(found.name) else None


def not_pinned(location: WeightsLocation, found: Path) -> str | None:
    """One line for a user where `location`, found in the folder `found`, may move; else None."""
    if location.is_pinned:
        return None
    now = location.commit(found)
    at = f"it is {now} now, so write @{now} in its place" if now else "write a commit in its place"
    return (
        f"{location}: {location.revision!r} is a branch or tag, and what is made of it cannot be "
        f"made again once it moves; {at}"
    )


def codec_weights_file(folder: Path) -> Path | None:
    """The weights file of a codec's folder; None where it has none."""
    present = [folder / name for name in CODEC_WEIGHTS if (folder / name).is_file()]
    return present[0] if present else None


def is_repository(text: str) -> bool:
    """Whether `text` has the form of a hub repository at a revision."""
    return _REPOSITORY.fullmatch(text) is not None


def parse_location(text: str, *, base: Path | None = None) -> WeightsLocation:
    """The location that `text` names: ``DIR`` or ``OWNER/NAME@REVISION``.

    A relative folder is looked up under `base` when given. A hub repository without a revision is
    refused: what was made could not be made again.

    Raises:
        ConfigurationError: `text` is neither.
    """
    if match := _REPOSITORY.fullmatch(text):
        return WeightsLocation(repository=match["repository"], revision=match["revision"])
    folder = user_path(text)
    if base is not None and not folder.is_absolute():
        folder = base / folder
    if text and folder.is_dir():
        return WeightsLocation(folder=folder)
    raise ConfigurationError(
        f"weights {shown(text)}: no such folder, and not OWNER/NAME@REVISION; give a folder that "
        "exists or pin the hub repository to a revision (a commit hash)"
    )


def fingerprint(folder: Path, *, but: Collection[str] = (), noted: bool = False) -> str:
    """Hash of a folder's weights: names, sizes and every byte.

    Takes 1 to 2 s a GB, or what the disk takes. With `noted`, a large file that is, by its number,
    size and times, the very one that was hashed before is taken by the hash that was noted then
    (`server.noted_hashes`). Files named in `but` are left out, and what is being written
    (`.NAME.part`).
    """
    whole = hashlib.sha256()
    notes = read_notes(folder) if noted else {}
    names = [p for p in folder.iterdir() if p.is_file() and p.name not in but]
    for path in sorted(p for p in names if not p.name.startswith(".")):
        size = path.stat().st_size
        whole.update(f"{path.name} {size}\n".encode())
        if size > _LARGE_BYTES:
            whole.update(bytes.fromhex(hash_of(path, notes.get(path.name))))
        else:
            whole.update(path.read_bytes())
    return whole.hexdigest()


def local_folder(location: WeightsLocation, patterns: list[str]) -> Path:
    """The folder that holds the weights, downloaded from the hub when they are not on this machine.

    Only files that match `patterns` are fetched. The hub's own cache and `HF_TOKEN` apply.

    Raises:
        WeightsError: the hub refused (gated, absent) or could not be reached.
    """
    if location.folder is not None:
        return location.folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        path = snapshot_download(
            location.repository, revision=location.revision, allow_patterns=patterns
        )
    except GatedRepoError as error:
        raise WeightsError(
            f"{location}: access is gated; accept the terms on the model's page with your account "
            "and set HF_TOKEN to a token of that account"
        ) from error
    except RevisionNotFoundError as error:
        raise WeightsError(
            f"{location}: the repository has no such revision; check the hash after '@'"
        ) from error
    except RepositoryNotFoundError as error:
        raise WeightsError(
            f"{location}: no such repository, or a private one that HF_TOKEN does not open"
        ) from error
    except LocalEntryNotFoundError as error:
        raise WeightsError(
            f"{location}: not on this machine and the hub could not be reached ({error}); connect, "
            "or give a folder that holds the weights"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise WeightsError(f"{location}: download failed: {error}; try again") from error
    return Path(path)
