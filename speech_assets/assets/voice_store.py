"""What the voice's assets share: their places in the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resources.store import Store
from speech_assets.errors import ConfigError

VOICES = {"heart": "af_heart", "michael": "am_michael"}
"""Name of a voice, and of the teacher's that it learns from."""
TEXTS = "voice/texts/text.jsonl.xz"
CODEC, LM = "voice/codec.json", "voice/lm.json"
"""Which training is in force: its folder below the store, its hash and what it was made from."""
GROUP = "voice"


def folder_of(store: Store, key: str) -> Path:
    """Path of `key` on this machine.

    Raises:
        ConfigError: the store is not a folder.
    """
    if not store.is_local:
        raise ConfigError(
            f"SPEECH_STORE={store.root} is not a folder; a voice is trained from files on this "
            "machine: set SPEECH_STORE to a folder"
        )
    return Path(store.path(key))


def made(store: Store, key: str, asset: str) -> Path:
    """Path of `key`, which `asset` makes.

    Raises:
        ConfigError: it is not there.
    """
    path = folder_of(store, key)
    if not path.exists():
        raise ConfigError(f"{path} is missing; materialize {asset} first")
    return path


def packs_of(store: Store) -> dict[str, Path]:
    """Folder of packs by voice, of the voices that are there.

    Raises:
        ConfigError: none is.
    """
    folders = {voice: folder_of(store, f"voice/corpus/{voice}") for voice in VOICES}
    found = {voice: f for voice, f in folders.items() if (f / "index.json").exists()}
    if not found:
        raise ConfigError(
            f"{folders[next(iter(folders))].parent} has no packs; materialize voice_corpus first"
        )
    return found


def in_force(store: Store, key: str, asset: str) -> dict[str, Any]:
    made(store, key, asset)
    return store.read_json(key)


def pack_options(packs: Mapping[str, Path]) -> list[str]:
    return [word for voice, folder in packs.items() for word in ("--packs", f"{voice}={folder}")]


def chosen(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: facts[name] for name in names if name in facts}
