"""The store: everything that is made, under one root that is a folder or an fsspec URL.

A reader never sees half an object. In a folder an object is written under a temporary name, flushed to
the disk and renamed. On an object store nothing is renamed: the data object is written first, then an
object of the same key with `_COMMITTED` behind it, and only the two together exist.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import socket
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from resources.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspec import AbstractFileSystem

COMMITTED = "._COMMITTED"
_CLIENT_LIBRARIES = {"botocore", "aiobotocore", "s3fs", "gcsfs", "adlfs", "aiohttp"}
_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space and run again, finished shards are kept",
    errno.EDQUOT: "the quota is used up; free space and run again, finished shards are kept",
    errno.EFBIG: "the file-size limit is reached (ulimit -f); raise it and run again",
    errno.EROFS: "the file system is read-only; set SPEECH_STORE to a place that can be written",
    errno.EACCES: "no permission; set SPEECH_STORE to a place that this user can write",
    errno.EPERM: "no permission; set SPEECH_STORE to a place that this user can write",
}


@dataclass(frozen=True)
class Store:
    """Objects by key (`tokens/train/train.000.parquet`) under `root`, a folder or an fsspec URL."""

    root: str

    @cached_property
    def _place(self) -> tuple[AbstractFileSystem, str]:
        try:
            filesystem, path = fsspec.core.url_to_fs(self.root)
        except (ImportError, ValueError) as error:
            raise StoreError(
                f"SPEECH_STORE={self.root!r} cannot be opened: {error}; give a folder or an fsspec URL "
                "(s3:// needs the extra: pip install 'speech-assets[s3]')"
            ) from error
        return filesystem, str(path).rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether the store is a folder of this machine."""
        return isinstance(self._place[0], LocalFileSystem)

    def path(self, key: str) -> str:
        """Full path or URL path of `key`, for messages and for the file system."""
        return f"{self._place[1]}/{key}"

    def exists(self, key: str) -> bool:
        """Whether `key` is there, whole."""
        with self._errors("look for", key):
            filesystem, _ = self._place
            if not self.is_local and not filesystem.exists(self.path(key) + COMMITTED):
                return False
            return bool(filesystem.exists(self.path(key)))

    @contextlib.contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        """`key` for reading, seekable.

        Raises:
            FileNotFoundError: there is no such object, or it was never finished.
        """
        if not self.exists(key):
            raise FileNotFoundError(errno.ENOENT, "not in the store", self.path(key))
        with self._errors("read", key):
            file = cast("BinaryIO", self._place[0].open(self.path(key), "rb"))
        with file:
            yield file

    def read_bytes(self, key: str) -> bytes:
        """Bytes of `key`."""
        with self.open(key) as file:
            return file.read()

    def read_json(self, key: str) -> Any:
        """JSON value of `key`.

        Raises:
            StoreError: the object is not JSON.
        """
        try:
            return json.loads(self.read_bytes(key))
        except ValueError as error:
            raise StoreError(
                f"{self.path(key)} is not JSON ({error}); delete it and make it again"
            ) from error

    def write(self, key: str, fill: Callable[[BinaryIO], object]) -> None:
        """Make `key` from what `fill` writes to the file it is given: whole, or not at all.

        Raises:
            StoreError: the disk is full, the place cannot be written, or the network failed.
        """
        with self._errors("write", key):
            if self.is_local:
                self._write_local(Path(self.path(key)), fill)
            else:
                self._write_object(self.path(key), fill)

    def write_bytes(self, key: str, data: bytes) -> None:
        """Make `key` from `data`."""
        self.write(key, lambda file: file.write(data))

    def write_json(self, key: str, value: Any) -> None:
        """Make `key` from a JSON value, keys sorted, so that equal values give equal bytes."""
        text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        self.write_bytes(key, text.encode() + b"\n")

    def delete(self, key: str) -> None:
        """Remove `key` if it is there."""
        with self._errors("delete", key):
            filesystem, _ = self._place
            for path in (self.path(key) + COMMITTED, self.path(key)):
                with contextlib.suppress(FileNotFoundError):
                    filesystem.rm_file(path)

    def keys(self, prefix: str) -> list[str]:
        """Keys of whole objects below the folder `prefix`, sorted; temporary files are left out."""
        with self._errors("list", prefix):
            filesystem, root = self._place
            filesystem.invalidate_cache()
            found = [str(path) for path in filesystem.find(self.path(prefix))]
        names = {path[len(root) + 1 :] if path.startswith(root) else path for path in found}
        if not self.is_local:
            names = {name for name in names if name + COMMITTED in names}
        return sorted(name for name in names if not Path(name).name.startswith("."))

    def _write_local(self, path: Path, fill: Callable[[BinaryIO], object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        temporary = path.with_name(f".{path.name}.{_owner()}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            with temporary.open("wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)

    def _write_object(self, path: str, fill: Callable[[BinaryIO], object]) -> None:
        filesystem, _ = self._place
        # The old mark goes first: between two versions the object does not exist.
        with contextlib.suppress(FileNotFoundError):
            filesystem.rm_file(path + COMMITTED)
        buffer = io.BytesIO()
        fill(buffer)
        filesystem.pipe_file(path, buffer.getvalue())
        filesystem.pipe_file(path + COMMITTED, b"")
        filesystem.invalidate_cache()

    @contextlib.contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, "check that the store can be reached, then retry")
            raise StoreError(
                f"cannot {verb} {self.path(key)}: {error.strerror or error}; {remedy}"
            ) from error
        except ImportError as error:
            raise StoreError(f"SPEECH_STORE={self.root!r} cannot be opened: {error}") from error
        except Exception as error:
            # Object-store clients raise their own families (no credentials, no endpoint).
            if type(error).__module__.split(".")[0] not in _CLIENT_LIBRARIES:
                raise
            raise StoreError(
                f"cannot {verb} {self.path(key)}: {error}; check the store's address and credentials"
            ) from error


def _owner() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _remove_abandoned(path: Path) -> None:
    """Delete what killed processes of this machine left of earlier attempts at `path`."""
    host = socket.gethostname()
    for leftover in path.parent.glob(f".{path.name}.{host}-*.tmp"):
        pid = leftover.name.removeprefix(f".{path.name}.{host}-").split(".")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            leftover.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
