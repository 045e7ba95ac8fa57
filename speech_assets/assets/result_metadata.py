"""What assets that measure show of a result on their page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Mapping


def result_metadata(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What an asset's page shows of a result: its figures, device, and the command that made it."""
    return {
        **{
            name: dg.MetadataValue.float(float(figure["value"]))
            for name, figure in value["figures"].items()
        },
        "result": dg.MetadataValue.path(path),
        "device": dg.MetadataValue.text(str(value["device"]["name"])),
        "status": dg.MetadataValue.text(str(value["status"])),
        "command": dg.MetadataValue.md(f"`{value['command']}`"),
    }
