"""The results that pages are rendered from: those in the repository's `results/`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.store import Store
from speech_assets.errors import ConfigError
from speech_assets.results.forms import KINDS
from speech_assets.results.recomputed import check_figures
from speech_assets.results.result import (
    check_complete,
    check_not_ahead,
    parse_result,
    read_result,
    result_key,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent.parent
PUBLISHED = ROOT / "results"
BEFORE_HASHES = {
    "055c8cdd731b62ce0572340af5f4dae96cde7249030d2769ce985a20a02fd5be": "tokenize, AMD EPYC",
    "ddfd7dd1d931e68af3a94a0ac4d1ae71e54f53db5fc2154bd2afda397234808d": "tokenize, H200, embedded",
    "bae9a4fcb17d3e095ed2ea1346656aae91e3521e7c9369033f2d75876ebd8a56": "tokenize, H200, untrained",
    "6aa97aa023411aa3f01afd91c680b633299e484a1f3403d736cb0d46c9e8d68e": "voice_codec",
    "cc49ac9b5c652698da5225b35d7e3051f9a3d4d9ff4a309fb20e0a45c67810f1": "voice_speech",
}
"""SHA-256 of the files that were published before results had a hash of their content, and which
they are. Once one was measured anew and is removed, its line goes, too."""


def of_kind(kind: str) -> list[dict[str, Any]]:
    """Published results of a kind: of each device and name the newest full one, else the newest.

    Raises:
        ConfigError: one is not a result that pages may show, or it is not where it belongs.
    """
    shown: dict[Path, dict[str, Any]] = {}
    for path in sorted((PUBLISHED / kind).glob("*/*/*.json")):
        value = read_published(path)
        known = shown.get(path.parent)
        if known is None or known["reduced"] or not value["reduced"]:
            shown[path.parent] = value
    return list(shown.values())


def read_published(path: Path) -> dict[str, Any]:
    """A result below `results/`.

    Raises:
        ConfigError: it is not a result that pages may show, or it is not where it belongs.
    """
    value = read_result(path, BEFORE_HASHES)
    _check(value, str(path))
    key = result_key(value)
    if path != ROOT / key:
        raise ConfigError(
            f"{path}: by its kind, device, name and started_at it belongs in {key}; move it there, "
            "or remove it"
        )
    return value


def publish(data: bytes, where: str) -> Path:
    """Write a result into `results/`; where it is now. `where` is what the user calls it.

    Raises:
        ConfigError: it is not a complete result of a kind that pages show.
    """
    value = parse_result(data, where, BEFORE_HASHES)
    check_not_ahead(value, where)
    _check(value, where)
    key = result_key(value)
    Store(str(ROOT)).write_bytes(key, data)
    return ROOT / key


def _check(value: Mapping[str, Any], where: str) -> None:
    if value["kind"] not in KINDS:
        raise ConfigError(
            f"{where}: no page shows results of kind {value['kind']!r}; those shown are "
            f"{', '.join(KINDS)}"
        )
    check_complete(value, where)
    check_figures(value, where)
