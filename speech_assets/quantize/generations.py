"""Generations run to their end by an engine, all at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.errors import EngineDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.engine import Engine, Generation


@dataclass(slots=True)
class Generated:
    """What came of one generation: ids without end_of_speech, and logprobs where it has them."""

    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[dict[int, float]] = field(default_factory=list[dict[int, float]])
    finish_reason: str = ""


def run_generations(
    engine: Engine,
    generations: Sequence[Generation],
    ended: Callable[[str], None] = lambda _: None,
) -> dict[str, Generated]:
    """What comes of each, by its request id; `ended` is called with the id of each that ends.

    Raises:
        EngineDiedError: the engine died, or gave one up.
        ServerError: it cannot run one.
    """
    found = {generation.request_id: Generated() for generation in generations}
    for generation in generations:
        engine.add(generation)
    while engine.busy:
        for output in engine.step():
            one = found[output.request_id]
            one.token_ids += output.token_ids
            one.logprobs += output.logprobs or []
            if output.finish_reason is None:
                continue
            if output.finish_reason == "error":
                raise EngineDiedError(f"{output.request_id}: the engine gave it up; run again")
            one.finish_reason = output.finish_reason
            ended(output.request_id)
    return found
