"""The store: everything that is made, under one root that is a folder or an fsspec URL.

A reader never sees half an object. In a folder an object is written under a temporary name, flushed
to the disk and renamed. On an object store nothing is renamed: the data object is written first,
then an object of the same key with `_COMMITTED` behind it, and only the two together exist.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import json
import os
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import fsspec
from fsspec.config import conf as fsspec_settings
from fsspec.implementations.local import LocalFileSystem

from resources.errors import StoreError
from resources.process import is_gone, process_name
from server.files import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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
    errno.EEXIST: "a file is where a folder must be; set SPEECH_STORE to a folder",
    errno.ENOTDIR: "a file is where a folder must be; set SPEECH_STORE to a folder",
}
_OBJECT_STORE_REMEDY = "check the store's address (AWS_ENDPOINT_URL), bucket and credentials"
# A listing that is remembered hides what work processes have written since. Few retries: that a
# store cannot be reached is said within a minute, and the asset tries again later.
_OBJECT_STORE_OPTIONS: dict[str, Any] = {"use_listings_cache": False}
_S3_OPTIONS: dict[str, Any] = {
    "config_kwargs": {
        "connect_timeout": 5,
        "read_timeout": 60,
        "retries": {"mode": "standard", "max_attempts": 3},
    }
}


@dataclass(frozen=True)
class Store:
    """Objects by key (`tokens/train/train.000.parquet`) under `root`, a folder or an fsspec URL."""

    root: str

    @cached_property
    def _place(self) -> tuple[AbstractFileSystem, str]:
        try:
            filesystem, path = fsspec.core.url_to_fs(self.root, **_options(self.root))
        except (ImportError, ValueError) as error:
            raise StoreError(
                f"SPEECH_STORE={self.root!r} cannot be opened: {error}; give a folder or an fsspec "
                "URL (s3:// needs the extra: pip install 'speech-assets[s3]')",
                retryable=False,
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
    def open(self, key: str) -> Generator[BinaryIO]:
        """`key` for reading, seekable.

        Raises:
            FileNotFoundError: there is no such object, or it was never finished.
        """
        if not self.exists(key):
            raise FileNotFoundError(errno.ENOENT, "not in the store", self.path(key))
        with self._errors("read", key):
            file = cast("BinaryIO", self._place[0].open(self.path(key), "rb"))
        with file:
            if self.is_local:
                yield file
            else:
                # Read piece by piece: the network may fail at any of them.
                yield io.BufferedReader(_Remote(file, lambda: self._errors("read", key)))

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
        try:
            with self._errors("write", key):
                if self.is_local:
                    self._write_local(Path(self.path(key)), fill)
                else:
                    self._write_object(self.path(key), fill)
        except FileNotFoundError as error:
            # The object need not be there before, so it is what must hold it that is missing.
            what = "its folder was removed meanwhile" if self.is_local else _OBJECT_STORE_REMEDY
            raise StoreError(f"cannot write {self.path(key)}: {error}; {what}") from error

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
        temporary = path.with_name(f".{path.name}.{process_name()}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            with temporary.open("wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            sync(path.parent)
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
    def _errors(self, verb: str, key: str) -> Generator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            remedy = "check that the store can be reached, then retry"
            if not self.is_local:
                remedy = _OBJECT_STORE_REMEDY
            remedy = _REMEDIES.get(error.errno or 0, remedy)
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
                f"cannot {verb} {self.path(key)}: {error}; {_OBJECT_STORE_REMEDY}"
            ) from error


class _Remote(io.RawIOBase):
    """A file of an object store whose failures are the store's errors, not those of the data."""

    def __init__(
        self, file: BinaryIO, errors: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._errors = errors

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        with self._errors():
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _options(root: str) -> dict[str, Any]:
    protocol = root.partition("://")[0] if "://" in root else "file"
    if protocol in ("file", "local"):
        return {}
    configured = fsspec_settings.get(protocol, {})
    options = _OBJECT_STORE_OPTIONS | (_S3_OPTIONS if protocol in ("s3", "s3a") else {})
    return {name: value for name, value in options.items() if name not in configured}


def _remove_abandoned(path: Path) -> None:
    """Delete what killed processes of this machine left of earlier attempts at `path`."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        owner = leftover.name.removeprefix(f".{path.name}.").rsplit(".", 2)[0]
        if is_gone(owner):
            leftover.unlink(missing_ok=True)
