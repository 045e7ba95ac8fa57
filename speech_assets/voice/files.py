"""Files of a training, known by their names and sums."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from server.files import sha256_of

if TYPE_CHECKING:
    from pathlib import Path


def sum_of(*folders: Path, pattern: str = "*") -> str:
    """Hash of the names and bytes of the files of `folders`, in order of their names."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
