"""The engine on a real vLLM: ids in, ids out, whatever the version; the contract of its adapter."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch
from engines import LIVE, compare, due_rows, ids, opened, prompt, run
from small_voice import write_small_voice
from transformers import LlamaForCausalLM, RepetitionPenaltyLogitsProcessor

from server.checkpoint import Checkpoint, open_checkpoint
from server.engine import Engine, EngineOutput, EngineSettings, Generation, Sampling, open_engine
from server.engine_arguments import argument_names
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

SETTINGS = EngineSettings(max_streams=3, max_model_len=1_024)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("voice")
    return open_checkpoint(write_small_voice(folder, live_codes=LIVE))


@pytest.fixture(scope="module")
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    with opened(checkpoint, SETTINGS) as engine:
        yield engine


@pytest.fixture(scope="module")
def reference(checkpoint: Checkpoint) -> LlamaForCausalLM:
    model = LlamaForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32)
    return model.eval()


def test_facts_say_what_runs(engine: Engine) -> None:
    facts = engine.facts
    assert (facts.head, facts.slot_rule, facts.dtype) == ("audio", "enforced", "float32")
    assert facts.sampler == "slot"
    assert (facts.max_streams, facts.max_model_len) == (3, 1_024)
    assert facts.vocabulary_rows == 7 * LIVE + 1
    assert facts.layers == "kernels"
    assert facts.vllm_version.startswith("0.")


@pytest.mark.usefixtures("engine")  # It has vLLM imported, with what it needs said before.
def test_the_arguments_that_a_preset_may_give_are_the_fields_of_vllms_own_classes() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs

    for form, arguments in (("in_process", EngineArgs), ("child", AsyncEngineArgs)):
        assert argument_names(form) == {field.name for field in dataclasses.fields(arguments)}


def test_only_live_codes_of_the_slot_that_is_due_come_out(
    engine: Engine, checkpoint: Checkpoint
) -> None:
    sampling = Sampling(temperature=2.0, top_p=1.0, max_tokens=210)
    outputs = run(engine, Generation("wild", prompt(checkpoint, "hello"), sampling))["wild"]
    got = ids(outputs)
    assert outputs[-1].finish_reason in ("stop", "length")
    assert len(got) > 7
    codes = checkpoint.layout.codes(got[: len(got) // 7 * 7])  # Raises on an id off its slot.
    assert codes.max() < LIVE


def test_a_seed_gives_its_tokens_alone_and_in_company(
    engine: Engine, checkpoint: Checkpoint
) -> None:
    def generation(name: str, seed: int, text: str = "hello") -> Generation:
        return Generation(name, prompt(checkpoint, text), Sampling(seed=seed, max_tokens=40))

    alone = ids(run(engine, generation("a", 7))["a"])
    together = run(engine, generation("b", 8, "so"), generation("a", 7), generation("c", 9, "no"))
    assert ids(together["a"]) == alone
    assert ids(together["b"]) != alone
    assert ids(run(engine, generation("a", 10))["a"]) != alone


def test_more_streams_than_fit_wait_and_all_finish(engine: Engine, checkpoint: Checkpoint) -> None:
    sampling = Sampling(max_tokens=14, seed=1)
    names = [f"stream {n}" for n in range(8)]
    outputs = run(engine, *(Generation(n, prompt(checkpoint, "a"), sampling) for n in names))
    assert {n: len(ids(outputs[n])) for n in names} == dict.fromkeys(names, 14)
    assert {outputs[n][-1].finish_reason for n in names} == {"length"}
    assert engine.step() == []


def test_an_abort_frees_the_slot_at_once(engine: Engine, checkpoint: Checkpoint) -> None:
    sampling = Sampling(max_tokens=900)
    for name in ("a", "b", "c", "waits"):
        engine.add(Generation(name, prompt(checkpoint, "a"), sampling))
    assert {o.request_id for o in engine.step()} == {"a", "b", "c"}
    engine.abort(["b", "unknown"])
    assert {o.request_id for o in engine.step()} == {"a", "c", "waits"}
    engine.add(Generation("b", prompt(checkpoint, "a"), sampling))  # Its id is free too.
    engine.abort(["a", "b", "c", "waits"])
    assert not engine.busy
    assert (
        len(ids(run(engine, Generation("b", prompt(checkpoint, "a"), Sampling(max_tokens=3)))["b"]))
        == 3
    )


def test_logprobs_are_those_of_transformers_over_the_same_rows(
    engine: Engine, checkpoint: Checkpoint, reference: LlamaForCausalLM
) -> None:
    sampling = Sampling(max_tokens=22, logprobs=20, seed=3)
    text = prompt(checkpoint, "wʌt ɪz ðə taɪm", "michael")  # noqa: RUF001
    outputs = run(engine, Generation("r", text, sampling))["r"]
    found = [row for output in outputs for row in output.logprobs or []]
    worst = compare(checkpoint, reference, text, ids(outputs), found)
    assert worst <= 1e-3


def test_repetition_penalty_is_that_of_transformers(
    engine: Engine, checkpoint: Checkpoint, reference: LlamaForCausalLM
) -> None:
    penalty = RepetitionPenaltyLogitsProcessor(2.0)
    plain = Sampling(temperature=0, repetition_penalty=1.0, max_tokens=30)
    free = ids(run(engine, Generation("p", prompt(checkpoint, "o"), plain))["p"])
    # The prompt holds audio ids too, as one with a reference's speech does.
    text = [*free, checkpoint.layout.end_of_speech, *prompt(checkpoint, "o")]
    sampling = Sampling(temperature=0, repetition_penalty=2.0, max_tokens=30)
    got = ids(run(engine, Generation("r", text, sampling))["r"])
    expected: list[int] = []
    with torch.inference_mode():
        for position in range(30):
            so_far = torch.tensor([text + expected])
            scores = penalty(so_far, reference(so_far).logits[:, -1])
            rows = due_rows(checkpoint, position)
            expected.append(rows[int(scores[0, rows].argmax())])
    assert got == expected
    assert not set(got) & set(free)  # Else nothing was penalized.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_ids": []}, "prompt is empty"),
        ({"prompt_ids": [1, 40_000]}, "prompt id 40000 is outside"),
        ({"prompt_ids": [1] * 1_024}, "does not fit the model length of 1024"),
        ({"sampling": Sampling(temperature=-1)}, "out of range"),
        ({"sampling": Sampling(top_p=0)}, "out of range"),
        ({"sampling": Sampling(seed=-1)}, "out of range"),
        ({"sampling": Sampling(max_tokens=0)}, "out of range"),
        ({"request_id": "taken"}, "running already"),
    ],
)
def test_what_cannot_run_is_refused_and_harms_nobody(
    engine: Engine, checkpoint: Checkpoint, change: dict[str, object], message: str
) -> None:
    taken = Generation("taken", prompt(checkpoint, "a"), Sampling(max_tokens=5))
    engine.add(taken)
    values = {"request_id": "bad", "prompt_ids": [1, 3], "sampling": Sampling(), **change}
    with pytest.raises(ConfigurationError, match=message):
        engine.add(Generation(**values))
    outputs: list[EngineOutput] = []
    while engine.busy:
        outputs += engine.step()
    assert {o.request_id for o in outputs} == {"taken"}
    assert len(ids(outputs)) == 5


def test_a_generation_ends_where_the_model_does(engine: Engine, checkpoint: Checkpoint) -> None:
    text = prompt(checkpoint, "a") + [3] * 1_000
    outputs = run(engine, Generation("r", text, Sampling(max_tokens=900)))["r"]
    assert len(ids(outputs)) == 1_024 - len(text)
    assert outputs[-1].finish_reason == "length"


def test_a_process_has_one_engine_at_a_time(engine: Engine, checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigurationError, match="has an engine open already"):
        open_engine(checkpoint, SETTINGS)
    assert ids(run(engine, Generation("r", prompt(checkpoint, "a"), Sampling(max_tokens=2)))["r"])
