"""What engine tests share: engines that are closed again, prompts, and transformers' word."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from server.engine import Engine, EngineOutput, EngineSettings, Generation, open_engine

if TYPE_CHECKING:
    from collections.abc import Generator

    from transformers import LlamaForCausalLM

    from server.checkpoint import Checkpoint

LIVE = 1_500  # Fewer than a slot's 4,096 rows, as a codec that leaves codes unused gives.


@contextmanager
def opened(checkpoint: Checkpoint, settings: EngineSettings) -> Generator[Engine]:
    """An open engine; afterwards torch is as it was (vLLM makes set_num_threads do nothing)."""
    set_threads = torch.set_num_threads
    engine = open_engine(checkpoint, settings)
    try:
        yield engine
    finally:
        engine.close()
        gc.collect()  # vLLM leaves sockets and files to it; here their warnings are the test's.
        torch.set_num_threads = set_threads


def run(engine: Engine, *generations: Generation) -> dict[str, list[EngineOutput]]:
    """The outputs of generations that run together."""
    for generation in generations:
        engine.add(generation)
    outputs: dict[str, list[EngineOutput]] = {g.request_id: [] for g in generations}
    while engine.busy:
        for output in engine.step():
            outputs[output.request_id].append(output)
    return outputs


def ids(outputs: list[EngineOutput]) -> list[int]:
    return [token_id for output in outputs for token_id in output.token_ids]


def prompt(checkpoint: Checkpoint, text: str, voice: str = "heart") -> list[int]:
    layout = checkpoint.layout
    return layout.prompt([layout.phoneme_base + layout.phonemes.index(c) for c in text], voice)


def due_rows(checkpoint: Checkpoint, position: int) -> list[int]:
    """Ids that may follow `position` audio ids."""
    layout, slot = checkpoint.layout, position % 7
    first = layout.audio_base + slot * 4_096
    return [*range(first, first + LIVE), *([layout.end_of_speech] if slot == 0 else [])]


def compare(
    checkpoint: Checkpoint,
    reference: LlamaForCausalLM,
    text: list[int],
    got: list[int],
    found: list[dict[int, float]],
) -> float:
    """The largest difference of a logprob from transformers', over the 20 likeliest a token."""
    with torch.inference_mode():
        logits = reference(torch.tensor([text + got])).logits[0, len(text) - 1 :].float()
    worst = 0.0
    assert len(found) >= len(got) >= 20
    for position, row in enumerate(found):
        rows = due_rows(checkpoint, position)
        expected = logits[position, rows].log_softmax(-1)
        assert len(row) >= 20
        for token_id, value in row.items():
            worst = max(worst, abs(value - float(expected[rows.index(token_id)])))
        best = torch.tensor(sorted(row.values(), reverse=True)[:20])
        worst = max(worst, float((best - expected.topk(20).values).abs().max()))
    return worst
