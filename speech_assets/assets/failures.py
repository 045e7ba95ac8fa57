"""How a work process' results become materializations, and its failures Dagster's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# For what can pass: a full disk that was emptied, a device that was taken, a killed process.
RETRIES = dg.RetryPolicy(
    max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)


def record_shards(
    context: dg.AssetExecutionContext,
    results: Sequence[Mapping[str, Any]],
    metadata: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> list[Mapping[str, Any]]:
    """Attach each finished shard's metadata to its partition; returns the shards' results.

    Raises:
        dg.Failure: the work failed. Shards that were finished before are recorded all the same, so
            that a rerun and the UI know of them.
    """
    shards = [result for result in results if result["kind"] == "shard"]
    failure = next((r for r in results if r["kind"] == "failure"), None)
    for result in shards:
        if failure is None:
            context.add_asset_metadata(metadata(result), partition_key=str(result["shard"]))
        else:
            context.log_event(
                dg.AssetMaterialization(
                    context.asset_key, partition=str(result["shard"]), metadata=metadata(result)
                )
            )
    if failure is not None:
        raise dg.Failure(
            str(failure["message"]),
            metadata={"last_lines": dg.MetadataValue.md(f"```\n{failure['tail']}\n```")},
            allow_retries=bool(failure["retryable"]),
        )
    return shards


def failed(error: Exception) -> dg.Failure:
    """The project's own error as Dagster's, retried only where trying again can help."""
    return dg.Failure(str(error), allow_retries=bool(getattr(error, "retryable", False)))
