"""The results that pages are rendered from: those in the repository's `results/`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.store import Store
from speech_assets.errors import ConfigError
from speech_assets.results.forms import KINDS
from speech_assets.results.result import check_complete, parse_result, read_result, result_key

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent.parent
PUBLISHED = ROOT / "results"


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
    value = read_result(path)
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
    value = parse_result(data, where)
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
