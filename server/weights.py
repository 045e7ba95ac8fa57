"""Where weights come from: a local folder, or a hub repository pinned to a revision."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from server.errors import ConfigurationError, WeightsError

if TYPE_CHECKING:
    from collections.abc import Collection

CODEC_WEIGHTS = ["pytorch_model.bin", "model.safetensors"]  # One of them, the first that is there.
CODEC_FILES = ["config.json", *CODEC_WEIGHTS]
_HASHED_BYTES = 64 << 20
MODEL_FILES = [
    *("config.json", "generation_config.json", "layout.json", "packed.json"),
    *("tokenizer.json", "tokenizer_config.json", "*.safetensors", "model.safetensors.index.json"),
]
_REPOSITORY = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)")


@dataclass(frozen=True, slots=True)
class WeightsLocation:
    """A folder on this machine (`folder`), or a hub repository at a revision."""

    folder: Path | None = None
    repository: str = ""
    revision: str = ""

    def __str__(self) -> str:
        return str(self.folder) if self.folder else f"{self.repository}@{self.revision}"


def parse_location(text: str, *, base: Path | None = None) -> WeightsLocation:
    """The location that `text` names: ``DIR`` or ``OWNER/NAME@REVISION``.

    A relative folder is looked up under `base` when given. A hub repository without a revision is
    refused: what was made could not be made again.

    Raises:
        ConfigurationError: `text` is neither.
    """
    if match := _REPOSITORY.fullmatch(text):
        return WeightsLocation(repository=match["repository"], revision=match["revision"])
    folder = Path(text).expanduser()
    if base is not None and not folder.is_absolute():
        folder = base / folder
    if text and folder.is_dir():
        return WeightsLocation(folder=folder)
    raise ConfigurationError(
        f"weights {text!r}: no such folder, and not OWNER/NAME@REVISION; give a folder that exists "
        "or pin the hub repository to a revision (a commit hash)"
    )


def fingerprint(folder: Path, *, but: Collection[str] = ()) -> str:
    """Hash of a folder's weights: names, sizes and contents, of a large file only its start.

    Files named in `but` are left out, and what is being written (`.NAME.part`). Hashing gigabytes
    would take longer than loading them.
    """
    whole = hashlib.sha256()
    names = [p for p in folder.iterdir() if p.is_file() and p.name not in but]
    for path in sorted(p for p in names if not p.name.startswith(".")):
        whole.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            whole.update(file.read(_HASHED_BYTES))
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
