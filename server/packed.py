"""Packed checkpoints: weights that ship small, expanded once into what others load.

A packed folder holds weights in the form of `server.packed_weights` and the small files of the
plain checkpoint (``config.json``, ``layout.json``, ...). `plain_folder` gives the folder that
transformers and vLLM read: made at first use, kept in the user's cache, and known by the hashes in
the manifest, so that one which was cut short, edited or put there by others is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from server import whole_folder
from server.errors import WeightsError
from server.packed_weights import (
    MANIFEST,
    WEIGHTS,
    PackedTensor,
    expanded_tensors,
    read_manifest,
    sha256_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPANDED = "model.safetensors"
NOT_EXPANDED = (MANIFEST, WEIGHTS, "figures.json")
LOCK_WAIT_S = 120.0
"""For another process to expand the same checkpoint; it takes a second or two."""

log = logging.getLogger(__name__)


def is_packed(folder: Path) -> bool:
    """Whether `folder` holds a packed checkpoint, and not a plain one."""
    return (folder / MANIFEST).is_file()


def plain_folder(folder: Path, cache: Path | None = None) -> Path:
    """The folder to load the checkpoint from: `folder` itself, or its expansion.

    An expansion lies in `cache` (default: the user's cache folder, or a private temporary one where
    that cannot be written) under a name that follows its content. It may be removed at any time.
    Processes that start together make one, and the others wait for it.

    Raises:
        WeightsError: the packed files are damaged, or no cache folder can be written.
    """
    if not is_packed(folder):
        return folder
    manifest = read_manifest(folder)
    refused: list[str] = []
    for root in [cache] if cache is not None else _cache_roots():
        target = root / f"{folder.resolve().name}-{_content_key(folder)}"
        if not _faults(target, folder, manifest):
            return target
        try:
            _make_private(root)
            with whole_folder.locked(target, LOCK_WAIT_S):
                _expand_locked(folder, manifest, target)
        except OSError as error:  # Also a lock that nobody gives back (filelock.Timeout).
            refused.append(f"{root}: {error}")
            continue
        return target
    raise WeightsError(
        f"{folder}: no place to expand the packed weights ({'; '.join(refused)}); free some disk "
        "space, or set XDG_CACHE_HOME to a folder that can be written"
    )


def _expand_locked(folder: Path, manifest: Mapping[str, PackedTensor], target: Path) -> None:
    """Make `target`, whose lock is held; another process may have made it while we waited."""
    fault = _faults(target, folder, manifest)
    if not fault:
        return
    if target.exists():
        log.warning("%s: %s; expanding it again", target, fault)
    tensors = expanded_tensors(folder, manifest)
    part = whole_folder.part_of(target)
    part.mkdir()
    try:
        for source in _companions(folder):
            shutil.copyfile(source, part / source.name)
        save_file(dict(tensors), part / EXPANDED, metadata={"format": "pt"})
        whole_folder.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _faults(target: Path, folder: Path, manifest: Mapping[str, PackedTensor]) -> str:
    """What is wrong with the expansion `target` of `folder`; empty when it is whole."""
    try:
        for source in _companions(folder):
            if (target / source.name).read_bytes() != source.read_bytes():
                return f"{source.name} differs"
        tensors = load_file(target / EXPANDED)
    except (OSError, SafetensorError) as error:
        return str(error)
    if tensors.keys() != manifest.keys():
        return f"{EXPANDED} has other tensors"
    for name, tensor in manifest.items():
        value = tensors[name]
        if value.dtype != np.float16 or value.shape != tensor.shape:
            return f"{name} is {value.dtype} {value.shape}"
        if sha256_of(value) != tensor.sha256:
            return f"{name} has other values"
    return ""


def _companions(folder: Path) -> list[Path]:
    """Files that go into the expansion as they are; pages and records of training do not."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.name not in NOT_EXPANDED and path.suffix != ".md"
    )


def _content_key(folder: Path) -> str:
    """16 hex digits that follow the content of the expansion; the manifest stands for weights."""
    digest = hashlib.sha256()
    for path in [folder / MANIFEST, *_companions(folder)]:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _cache_roots() -> list[Path]:
    """Where expansions may lie, the best place first."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    # A relative one is to be ignored, says the specification of XDG_CACHE_HOME.
    caches = [Path(home)] if Path(home).is_absolute() else []
    with contextlib.suppress(RuntimeError):  # No home folder at all, as in some containers.
        caches.append(Path.home() / ".cache")
    user = f"speech-assets-{os.getuid()}" if hasattr(os, "getuid") else "speech-assets"
    return [*(cache / "speech-assets" for cache in caches), Path(tempfile.gettempdir()) / user]


def _make_private(root: Path) -> None:
    """Make `root`, for this user alone.

    Raises:
        OSError: it cannot be made or written, or is another user's.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} belongs to another user")
