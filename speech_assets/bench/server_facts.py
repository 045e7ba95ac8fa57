"""What a server says of itself before and after a load, and whether it is still the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speech_assets.bench.metrics import fell

if TYPE_CHECKING:
    from speech_assets.bench.metrics import Metrics


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server's own word, as far as it gives one; None where it does not."""

    config: dict[str, Any] | None
    metrics: Metrics | None
    identity: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        """Whether it is this project's server."""
        return self.config is not None and {"config_sha256", "formats"} <= set(self.config)


def was_restarted(before: ServerFacts, after: ServerFacts) -> bool:
    """Whether the server after a load is another process than before it, or none any more."""
    if before.identity and before.identity != after.identity:
        return True
    if before.metrics is None or after.metrics is None:
        return False
    return fell(before.metrics, after.metrics)
