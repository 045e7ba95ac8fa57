"""Files of a training: written under another name and moved into place, and known by their sums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON under a temporary name, then move it into place."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(value, indent=1) + "\n", "utf-8")
    temporary.replace(path)


def sha256_of(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sum_of(*folders: Path, pattern: str = "*") -> str:
    """Hash of the names and bytes of the files of `folders`, in order of their names."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
