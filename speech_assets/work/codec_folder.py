"""The folder of a form in the store: whole or not there, and kept while its parent is the same."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import Timeout

from resources.errors import StoreError
from server import whole_folder
from server.codec_decode_only import NoEncoder, pack_codec
from server.errors import WeightsError
from speech_assets.codec_forms.record import (
    CONFIG_FILE,
    RECORD_FILE,
    WEIGHTS_FILE,
    CodecRecord,
    Parent,
    codec_key,
    find_whole,
)
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

    from resources.store import Store
    from server.codec import Codec
    from server.codec_form import Form


_LOCK_WAIT_S = 60.0
"""For another process to make the same form, which takes it a few seconds."""


def form_folder(store: Store, form: Form) -> Path:
    """Where the store has the codec of a form.

    Raises:
        ConfigError: the store is no folder.
    """
    if not store.is_local:
        raise ConfigError(
            f"SPEECH_STORE={store.root!r} is no folder of this machine, and the server loads codecs"
            " from a folder; give one with --store"
        )
    return Path(store.path(codec_key(form)))


def make_form(
    store: Store, codec: Codec, source: Path, location: str, form: Form
) -> tuple[dict[str, Any], bool]:
    """Make `codecs/<form>/` of `codec`, unless it is there; its record, and whether it is new.

    At every moment it is whole or not there (`server.whole_folder`). What a killed process left is
    mended by the next one.

    Args:
        store: a folder.
        codec: a whole codec.
        source: the folder that it was loaded from.
        location: that folder, or repository, as it is recorded.

    Raises:
        ConfigError: the store is no folder.
        WeightsError: the codec cannot have this form.
        StoreError: no space, or the store cannot be written.
    """
    folder = form_folder(store, form)
    _check_parent(codec, source)
    identity = codec.identity
    parent = Parent(location, identity.name, identity.weights_sha256, identity.config_sha256)
    with _disk_errors(folder), whole_folder.locked(folder, _LOCK_WAIT_S):
        if (found := find_whole(folder, form, parent)) is not None:
            return found, False
        data = pack_codec(codec.model, form, trained=identity.trained)
        sha256 = hashlib.sha256(data).hexdigest()
        record = CodecRecord(form, parent, identity.trained, sha256, len(data)).as_json()
        part = whole_folder.part_of(folder)
        key = f"{codec_key(form).rpartition('/')[0]}/{part.name}"
        try:
            store.write_bytes(f"{key}/{CONFIG_FILE}", (source / CONFIG_FILE).read_bytes())
            store.write_bytes(f"{key}/{WEIGHTS_FILE}", data)
            store.write_json(f"{key}/{RECORD_FILE}", record)
            whole_folder.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return record, True


def _check_parent(codec: Codec, source: Path) -> None:
    if isinstance(codec.model.encoder, NoEncoder):
        raise WeightsError(
            f"{source}: a decode-only codec; give the whole codec that it was made from"
        )
    if cast("int | None", codec.model.attn_window_size) is not None:
        raise WeightsError(
            f"{source}: codec {codec.identity.name} has attention windows, which the server's "
            "decoder cannot crop; use SNAC 24 kHz (attn_window_size null)"
        )


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Generator[None]:
    """What the disk says of `folder`, beside the files that the store writes, as one line."""
    try:
        yield
    except Timeout as error:
        raise StoreError(
            f"{folder}: another process makes this codec and took more than "
            f"{_LOCK_WAIT_S:g} s; wait for it, or end it"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {folder}: {error.strerror or error}; free space, or give --store a "
            "folder that can be written",
            retryable=False,
        ) from error
