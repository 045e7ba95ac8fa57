"""The engine on a GPU: the same contract through vLLM's other runner and the fused sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from engines import LIVE, compare, due_rows, ids, opened, prompt, run
from small_voice import write_small_voice
from transformers import LlamaForCausalLM, RepetitionPenaltyLogitsProcessor

from server.checkpoint import Checkpoint, open_checkpoint
from server.engine import Engine, EngineSettings, Generation, Sampling

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # vLLM's and torch's, of their own use.
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
SETTINGS = EngineSettings(
    dtype="bfloat16",
    device="cuda",
    max_streams=8,
    max_model_len=1_024,
    kv_cache_mib=256,
    vllm_args={"max_num_batched_tokens": 1_024},
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("voice")
    return open_checkpoint(write_small_voice(folder, live_codes=LIVE))


@pytest.fixture(scope="module")
def reference(checkpoint: Checkpoint) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.bfloat16).eval()


@pytest.fixture(scope="module")
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    with opened(checkpoint, SETTINGS) as engine:
        yield engine


def test_the_slot_rule_is_enforced(engine: Engine, checkpoint: Checkpoint) -> None:
    assert (engine.facts.slot_rule, engine.facts.sampler) == ("enforced", "fused")
    assert engine.facts.vocabulary_rows == 7 * LIVE + 1
    sampling = Sampling(temperature=2.0, top_p=1.0, max_tokens=210)
    names = [f"r{n}" for n in range(8)]
    outputs = run(engine, *(Generation(n, prompt(checkpoint, "hello"), sampling) for n in names))
    for name in names:
        got = ids(outputs[name])
        assert checkpoint.layout.codes(got[: len(got) // 7 * 7]).max() < LIVE


def test_a_seed_gives_its_tokens_again(engine: Engine, checkpoint: Checkpoint) -> None:
    def tokens(seed: int) -> list[int]:
        generation = Generation("r", prompt(checkpoint, "so"), Sampling(seed=seed, max_tokens=40))
        return ids(run(engine, generation)["r"])

    assert tokens(5) == tokens(5)
    assert tokens(5) != tokens(6)


def test_vllms_own_sampler_gives_the_same_tokens(engine: Engine, checkpoint: Checkpoint) -> None:
    """What asks for logprobs is drawn by it: alone in its batch, of the same logits to the bit."""

    def tokens(sampling: Sampling) -> list[int]:
        return ids(run(engine, Generation("r", prompt(checkpoint, "so"), sampling))["r"])

    greedy = Sampling(temperature=0, repetition_penalty=1.1, max_tokens=70)
    found = tokens(greedy)
    assert found == tokens(replace(greedy, logprobs=1))
    assert found != tokens(replace(greedy, repetition_penalty=1.0))


def test_a_seed_draws_in_a_batch_what_it_draws_alone(
    engine: Engine, checkpoint: Checkpoint
) -> None:
    def together(*seeds: int, logprobs: int | None = None) -> dict[int, list[int]]:
        generations = [
            Generation(
                str(seed), prompt(checkpoint, "so"),
                Sampling(seed=seed, max_tokens=7, logprobs=logprobs if seed == seeds[0] else None),
            )
            for seed in seeds
        ]  # fmt: skip
        outputs = run(engine, *generations)
        return {seed: ids(outputs[str(seed)]) for seed in seeds}

    seeds = tuple(range(20, 28))
    eight = together(*seeds)
    assert len({tuple(found) for found in eight.values()}) == 8
    # A product of other rows rounds otherwise, and moves a draw now and then; not most of them.
    assert sum(together(seed)[seed] == eight[seed] for seed in seeds) >= 4
    # The same products, to the bit: only the first is drawn by vLLM's sampler.
    mixed = together(*seeds, logprobs=1)
    assert [mixed[seed] for seed in seeds[1:]] == [eight[seed] for seed in seeds[1:]]


def test_logprobs_are_those_of_transformers_over_the_same_rows(
    engine: Engine, checkpoint: Checkpoint, reference: LlamaForCausalLM
) -> None:
    text = prompt(checkpoint, "wat iz taim")
    outputs = run(engine, Generation("r", text, Sampling(max_tokens=22, logprobs=20, seed=3)))["r"]
    found = [
        {token_id: value for token_id, value in row.items() if token_id in due_rows(checkpoint, n)}
        for n, row in enumerate(row for output in outputs for row in output.logprobs or [])
    ]
    assert compare(checkpoint, reference, text, ids(outputs), found) <= 0.05


def test_repetition_penalty_is_that_of_transformers(
    engine: Engine, checkpoint: Checkpoint, reference: LlamaForCausalLM
) -> None:
    plain = Sampling(temperature=0, repetition_penalty=1.0, max_tokens=14)
    free = ids(run(engine, Generation("p", prompt(checkpoint, "o"), plain))["p"])
    text = [*free, *prompt(checkpoint, "o")]
    sampling = Sampling(temperature=0, repetition_penalty=2.0, max_tokens=14)
    got = ids(run(engine, Generation("r", text, sampling))["r"])
    penalty = RepetitionPenaltyLogitsProcessor(2.0)
    for position, token_id in enumerate(got):
        so_far = torch.tensor([text + got[:position]])
        with torch.inference_mode():
            scores = penalty(so_far, reference(so_far).logits[:, -1].float())
        rows = due_rows(checkpoint, position)
        best = float(scores[0, rows].max())
        assert float(scores[0, token_id]) >= best - 0.06  # bfloat16 of either side.
    assert not set(got) & set(free)


def test_an_abort_frees_the_slot(engine: Engine, checkpoint: Checkpoint) -> None:
    for n in range(8):
        engine.add(Generation(f"a{n}", prompt(checkpoint, "a"), Sampling(max_tokens=900)))
    engine.add(Generation("waits", prompt(checkpoint, "a"), Sampling(max_tokens=5)))
    seen: set[str] = set()
    while len(seen) < 8:
        seen |= {output.request_id for output in engine.step()}
    engine.abort([f"a{n}" for n in range(8)])
    outputs = []
    while engine.busy:
        outputs += engine.step()
    assert {output.request_id for output in outputs} == {"waits"}
    assert len(ids(outputs)) == 5
