"""A result by hand, as a measuring command writes it."""

from __future__ import annotations

import json
from typing import Any

from speech_assets.results.result import Figure, Result

FIGURES = {
    "hours_per_min": Figure(1.234, "h/min", 3, 1.2, 1.3),
    "encoder_hours_per_min": Figure(1.3, "h/min"),
    "share_of_encoder": Figure(0.95, "ratio"),
    "agreement": Figure(1.0, "share"),
    "device_busy_share": Figure(0.9, "share"),
    "peak_memory_gib": Figure(0.5, "GiB"),
}


def example(**changed: Any) -> bytes:
    """The file of a tokenization, changed before it was written."""
    given: dict[str, Any] = {
        "kind": "tokenize",
        "name": "snac-5.1M-abc",
        "started_at": "2026-11-29T10:00:00Z",
        "device": {"name": "A CPU (R) 9000"},
        "command": "python -m speech_assets.work.bench_tokenize",
        "config": {"codec": "snac-5.1M-abc", "shards": 8},
        "rows": [{"round": 0}],
        "figures": FIGURES,
        **changed,
    }
    return json.dumps(Result(**given).as_json()).encode()
