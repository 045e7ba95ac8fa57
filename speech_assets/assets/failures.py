"""How a work process' results become materializations, and its failures Dagster's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from resources.errors import ResourceError
from server.errors import ServerError
from speech_assets.errors import SpeechAssetsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# For what can pass: a full disk that was emptied, a device that was taken, a killed process. Not a
# RetryPolicy: with one, Dagster takes Ctrl-C and a cancel in the UI for a failure and starts anew.
MAX_RETRIES = 2
RETRY_AFTER_S = (5, 10)
SKIPPED = "skipped: "
"""How the failure of a partition begins that is not for this machine: nothing is to be mended."""
ERRORS = (SpeechAssetsError, ResourceError, ServerError)
"""The project's own, whose messages are for users: an asset shows them as its failure."""


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
    failure = _failure(results)
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
        raise _ended(context, failure)
    return shards


def result_of(
    context: dg.AssetExecutionContext, results: Sequence[Mapping[str, Any]], kind: str
) -> Mapping[str, Any]:
    """The work process' one result of `kind`.

    Raises:
        dg.Failure, dg.RetryRequested: the work failed.
    """
    if failure := _failure(results):
        if any(result["kind"] == "error" and result.get("skips") for result in results):
            raise dg.Failure(f"{SKIPPED}{failure['message']}")
        raise _ended(context, failure)
    return next(result for result in results if result["kind"] == kind)


def failed(context: dg.AssetExecutionContext, error: Exception) -> Exception:
    """The project's own error as what Dagster must see: a failure, or the wish to try again."""
    failure = dg.Failure(str(error))
    return tried_again(context, failure, retryable=bool(getattr(error, "retryable", False)))


def tried_again(
    context: dg.AssetExecutionContext, failure: dg.Failure, *, retryable: bool
) -> Exception:
    """`failure`, or a request to run the step again where that can help and attempts are left."""
    attempt = context.op_execution_context.retry_number
    if not retryable or attempt >= MAX_RETRIES:
        return failure
    context.log.warning(f"{failure.description}; trying again in {RETRY_AFTER_S[attempt]} s")
    request = dg.RetryRequested(MAX_RETRIES, seconds_to_wait=RETRY_AFTER_S[attempt])
    request.__cause__ = failure
    return request


def _failure(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((result for result in results if result["kind"] == "failure"), None)


def _ended(context: dg.AssetExecutionContext, failure: Mapping[str, Any]) -> Exception:
    ended = dg.Failure(
        str(failure["message"]),
        metadata={"last_lines": dg.MetadataValue.md(f"```\n{failure['tail']}\n```")},
    )
    return tried_again(context, ended, retryable=bool(failure["retryable"]))
