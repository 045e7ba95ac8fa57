"""The check `engine`: vLLM with a checkpoint gives the logprobs of its dequantized weights.

The engine generates greedily from held prompts; a torch forward of the same weights says what it
had to think at every token. Both are compared over the ids that the engine names, with what else it
gives left out, so that an audio head and a whole one are measured alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from server.checks import Check
from server.engine import EngineSettings, Generation, Sampling, open_engine
from server.frames import CODEBOOK_SIZE, TOKENS_PER_FRAME
from speech_assets.quantize.generations import run_generations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from server.checkpoint import Checkpoint
    from server.frames import TokenLayout

    Logits = Callable[[Sequence[int], Sequence[int]], Tensor]
    """Of prompt ids and token ids, the float32 logits (tokens, live codes + 1) from which each was
    chosen: the due slot's codes, then end_of_speech. As `reference.teacher_forced_logits`."""

CHECK = "engine"
LIMIT_NATS = 0.003
"""Largest mean KL divergence of the engine from the reference, nats a token, of weights alone: on
a CPU it was 0.0002 for bf16 and w4a16 and 0.0007 with a head of 4 bits, and 0.008 between the first
two, so that other weights are noticed (embedded voice, bfloat16)."""
FP8_LIMIT_NATS = 0.02
"""The same where inputs or the cache are of 8-bit floats: what differs by a bfloat16's last bit may
round to another of 8 bits, a sixteenth away (0.0059 for fp8, 0.0095 with such a cache)."""
TOKENS = 42
"""Of each generation: six frames."""
LEAST_TOKENS = 21
"""Three frames, each slot three times: fewer are left where a checkpoint does not speak."""
_LIKELIEST = 20


@dataclass(frozen=True, slots=True)
class Continuation:
    """What the engine gave for a prompt: ids, and each token's likeliest ids with logprobs."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, float], ...]


def generate(
    checkpoint: Checkpoint, settings: EngineSettings, prompts: Sequence[Sequence[int]]
) -> list[Continuation]:
    """Open an engine, continue each prompt greedily, close it.

    Raises:
        ConfigurationError, WeightsError, EngineDiedError: it does not open, or dies.
    """
    sampling = Sampling(
        temperature=0, repetition_penalty=1.0, max_tokens=TOKENS, logprobs=_LIKELIEST
    )
    generations = [Generation(str(n), prompt, sampling) for n, prompt in enumerate(prompts)]
    engine = open_engine(checkpoint, settings)
    try:
        found = run_generations(engine, generations)
    finally:
        engine.close()
    return [
        Continuation(tuple(prompt), tuple(one.token_ids), tuple(one.logprobs))
        for prompt, one in zip(prompts, found.values(), strict=True)
    ]


def compare(
    found: Sequence[Continuation],
    expected: Logits,
    layout: TokenLayout,
    *,
    limit_nats: float = LIMIT_NATS,
) -> Check:
    """The check: the mean KL divergence of the engine's choices from those of `expected`."""
    divergences: list[float] = []
    agreed = skipped = 0
    for one in found:
        ids = _on_slot(one.token_ids, layout)
        if not ids:
            continue
        logits = expected(one.prompt_ids, ids)
        for position, row in enumerate(one.logprobs[: len(ids)]):
            columns = _columns(row, position, layout)
            ours = torch.tensor([row[n] for n in columns]).double().log_softmax(-1)
            theirs = logits[position, list(columns.values())].double().log_softmax(-1)
            kept = theirs > float("-inf")
            if int(kept.sum()) < 2:  # Of one code alone both are certain, whatever the weights.
                skipped += 1
                continue
            difference = (theirs[kept].exp() * (theirs[kept] - ours[kept])).sum()
            divergences.append(float(difference))
            best = int(logits[position].argmax())
            agreed += best == columns.get(ids[position])
    if len(divergences) < LEAST_TOKENS:
        detail = (
            f"{len(divergences)} tokens in their slots came of {len(found)} prompts, too few to "
            f"compare ({LEAST_TOKENS}){_skipped(skipped)}; the engine does not speak"
        )
        return Check(False, detail, None, limit_nats)
    value = sum(divergences) / len(divergences)
    passed = value <= limit_nats  # Not a number fails, too.
    detail = (
        f"{value:.5f} nats a token from a torch forward of the same weights (limit "
        f"{limit_nats:g}), the same likeliest id in {agreed} of {len(divergences)} tokens"
        f"{_skipped(skipped)}"
    )
    return Check(passed, detail, value if value == value else None, limit_nats)


def _skipped(count: int) -> str:
    of_one = "named one code alone that may follow"
    return f", {count} tokens left out, of which the engine {of_one}" if count else ""


def _on_slot(token_ids: Sequence[int], layout: TokenLayout) -> list[int]:
    """The ids up to the first that is off its slot, which a whole head may give."""
    kept: list[int] = []
    for position, token_id in enumerate(token_ids):
        first = layout.audio_base + position % TOKENS_PER_FRAME * CODEBOOK_SIZE
        if not first <= token_id < first + layout.live_codes:
            break
        kept.append(token_id)
    return kept


def _columns(row: dict[int, float], position: int, layout: TokenLayout) -> dict[int, int]:
    """Column of the reference's logits of each id in `row` that may be due at `position`."""
    slot = position % TOKENS_PER_FRAME
    first = layout.audio_base + slot * CODEBOOK_SIZE
    columns = {n: n - first for n in row if first <= n < first + layout.live_codes}
    if slot == 0 and layout.end_of_speech in row:
        columns[layout.end_of_speech] = layout.live_codes
    return {n: column for n, column in columns.items() if row[n] > float("-inf")}
