"""The results that pages are rendered from: those in the repository's `results/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speech_assets.errors import ConfigError
from speech_assets.results.result import kind_folder, read_result, result_key

ROOT = Path(__file__).parent.parent.parent
PUBLISHED = ROOT / "results"


def of_kind(kind: str) -> list[dict[str, Any]]:
    """Published results of a kind: the newest of each device and name."""
    newest: dict[Path, Path] = {}
    for path in sorted((PUBLISHED / kind_folder(kind)).glob("*/*/*.json")):
        newest[path.parent] = path
    return [read_result(path) for path in newest.values()]


def publish(path: Path, name: str = "") -> Path:
    """Copy a result file into `results/`; where it is now. `name` is what the user calls it.

    Raises:
        ConfigError: it is not a complete result of this schema.
    """
    value = read_result(path)
    if value["status"] != "complete":
        raise ConfigError(
            f"{name or path}: status is {value['status']!r}, and only complete results are shown; "
            f"measure it again on a quieter machine ({value['command']})"
        )
    target = ROOT / result_key(value)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path.read_bytes())
    return target
