"""The Dagster resources: store, codec weights and work processes, configured once in `definitions`.

Dagster's and pydantic's types stay here; what they hand out are the plain objects of this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from resources import work
from resources.errors import WorkError
from resources.store import Store
from server.weights import CODEC_FILES, local_folder, parse_location

if TYPE_CHECKING:
    from collections.abc import Sequence


class StoreResource(dg.ConfigurableResource):
    """Where everything that is made is kept: a folder or an fsspec URL."""

    root: str

    def store(self) -> Store:
        """The store itself."""
        return Store(self.root)


class CodecResource(dg.ConfigurableResource):
    """Codec weights: a folder, or OWNER/NAME@REVISION on the hub."""

    location: str
    weights_sha256: str = ""
    allow_untrained: bool = False

    def folder(self) -> Path:
        """Folder with config.json and weights, downloaded if need be.

        Raises:
            ServerError: the weights cannot be had. Whether they are those that the profile pins is
                for the work process to tell, which loads them.
        """
        return local_folder(parse_location(self.location), CODEC_FILES)


class WorkResource(dg.ConfigurableResource):
    """Runs `python -m speech_assets.work.<name>` for an asset and collects what it reports."""

    def run(
        self, context: dg.AssetExecutionContext, name: str, arguments: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Run the work process and return its results, one dict each, in order.

        When it failed, the last is of kind "failure", with `message`, `retryable` and `tail` (the
        last lines it wrote): what was finished before is among the results and can be recorded.
        """
        with dg.open_pipes_session(
            context, dg.PipesTempFileContextInjector(), dg.PipesTempFileMessageReader()
        ) as session:
            error: WorkError | None = None
            with work.running(
                f"speech_assets.work.{name}", arguments, session.get_bootstrap_env_vars()
            ) as process:
                try:
                    process.wait()
                except WorkError as work_error:
                    error = work_error
        results = [dict(message) for message in session.get_custom_messages()]
        if error is not None:
            said = [str(r["message"]) for r in results if r.get("kind") == "error"]
            results.append(
                {
                    "kind": "failure",
                    "message": said[-1] if said else str(error),
                    "retryable": error.retryable,
                    "tail": "\n".join(process.tail),
                }
            )
        return results
