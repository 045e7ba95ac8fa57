"""What a server says of itself, asked before and after a load: configuration and metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping

_ASK_WITHIN_S = 5.0
ACTIVE_STREAMS = "speech_active_streams"
_STARTED = "process_start_time_seconds"
_COUNTS = ("_total", "_count", "_sum", "_bucket")
_POLL_EVERY_S = 0.005


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server's own word, as far as it gives one; None where it does not."""

    config: dict[str, Any] | None
    metrics: dict[str, float] | None
    identity: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        """Whether it is this project's server."""
        return self.config is not None and {"config_sha256", "formats"} <= set(self.config)


class ServerProbe:
    """Asks a server. What it does not answer, or not in time, is simply not known."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        # A proxy in the environment is for the wide world, not for what is measured.
        self._client = httpx.Client(
            base_url=base_url, headers=dict(headers), timeout=_ASK_WITHIN_S, trust_env=False
        )

    def __enter__(self) -> ServerProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def facts(self) -> ServerFacts:
        """Everything it says now."""
        config = self._json("/config")
        metrics = self.metrics()
        started = [str(metrics[_STARTED])] if metrics and _STARTED in metrics else []
        if config and "config_sha256" in config:
            # Ours says when it started as the age of its models; others invent that field.
            models = (self._json("/v1/models") or {}).get("data") or []
            started += [str(models[0].get("created"))] if models else []
            started.append(str(config["config_sha256"]))
        return ServerFacts(config, metrics, tuple(started))

    def metrics(self) -> dict[str, float] | None:
        """Each sample of /metrics by its name and labels, as in the text; None without."""
        try:
            text = self._client.get("/metrics").raise_for_status().text
            return {
                sample.name + _labels(sample.labels): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if not sample.name.endswith("_created")
            }
        except (httpx.HTTPError, ValueError):
            return None

    def freed_s(self, within_s: float) -> float | None:
        """When (monotonic) no stream is active any more; None if unknown or not in time."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            metrics = self.metrics()
            if metrics is None or ACTIVE_STREAMS not in metrics:
                return None
            if metrics[ACTIVE_STREAMS] == 0:
                return time.monotonic()
            time.sleep(_POLL_EVERY_S)
        return None

    def _json(self, path: str) -> dict[str, Any] | None:
        try:
            value = self._client.get(path).raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return None
        return value if isinstance(value, dict) else None


def changes(
    before: Mapping[str, float] | None, after: Mapping[str, float] | None
) -> dict[str, float] | None:
    """What counters and histograms grew by, and where gauges stand; None where nothing is known."""
    if before is None or after is None:
        return None
    return {
        name: value - before.get(name, 0.0) if _is_count(name) else value
        for name, value in after.items()
    }


def was_restarted(before: ServerFacts, after: ServerFacts) -> bool:
    """Whether the server after a load is another process than before it, or none any more."""
    if before.identity and before.identity != after.identity:
        return True
    old, new = before.metrics or {}, after.metrics or {}
    return any(new[name] < value for name, value in old.items() if name in new and _is_count(name))


def _is_count(name: str) -> bool:
    return name.partition("{")[0].endswith(_COUNTS)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
