"""Engines of their own: ends, little memory, death, other heads and precisions."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from engines import LIVE, compare, ids, opened, prompt, run
from small_voice import write_small_voice
from transformers import LlamaForCausalLM

from server.checkpoint import Checkpoint, open_checkpoint
from server.engine import EngineSettings, Generation, Sampling, open_engine
from server.errors import ConfigurationError, EngineDiedError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

SETTINGS = EngineSettings(max_streams=3, max_model_len=1_024)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("voice")
    return open_checkpoint(write_small_voice(folder, live_codes=LIVE))


@pytest.fixture(scope="module")
def reference(checkpoint: Checkpoint) -> LlamaForCausalLM:
    model = LlamaForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32)
    return model.eval()


def test_speech_ends_before_a_frame_and_says_stop(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_small_voice(tmp_path, live_codes=LIVE, ends=True))
    with opened(checkpoint, SETTINGS) as engine:
        names = [f"r{n}" for n in range(12)]
        text = prompt(checkpoint, "a")
        outputs = run(
            engine,
            *(Generation(n, text, Sampling(1.0, 1.0, seed=s)) for s, n in enumerate(names)),
        )
        lengths = [len(ids(outputs[n])) for n in names]
        assert {outputs[n][-1].finish_reason for n in names} == {"stop"}
        assert len(set(lengths)) > 1
        assert all(length and length % 7 == 0 for length in lengths)
        for name in names:
            upper = checkpoint.layout.codes(ids(outputs[name]))[:, 6] >= LIVE // 2
            assert upper[-1]
            assert not upper[:-1].any()


def test_an_engine_opens_in_a_process_that_has_imported_whisper(checkpoint: Checkpoint) -> None:
    importlib.import_module("whisper")
    assert "llvmlite.binding.ffi" in sys.modules
    with opened(checkpoint, SETTINGS) as engine:
        spoken = run(
            engine, Generation("r", prompt(checkpoint, "a"), Sampling(seed=1, max_tokens=7))
        )
    assert len(ids(spoken["r"])) == 7


def test_preemption_and_cut_prompts_change_nothing(checkpoint: Checkpoint) -> None:
    text = prompt(checkpoint, "wʌt ɪz ðə taɪm" * 12)  # noqa: RUF001
    generations = [Generation(f"r{n}", text, Sampling(seed=n, max_tokens=210)) for n in range(3)]
    with opened(checkpoint, SETTINGS) as roomy:
        expected = {name: ids(o) for name, o in run(roomy, *generations).items()}
    # 5 blocks of 128 tokens for three streams of 3 each; prompts of 173 tokens, 64 a step.
    tight = EngineSettings(
        max_streams=3,
        max_model_len=512,
        vllm_args={"num_gpu_blocks_override": 6, "max_num_batched_tokens": 64},
    )
    with opened(checkpoint, tight) as small:
        scheduler = small._core.engine_core.scheduler
        free, preempted = scheduler._preempt_request, []

        def preempt(request: object, *args: object, **kwargs: object) -> None:
            preempted.append(request)
            free(request, *args, **kwargs)

        scheduler._preempt_request = preempt  # Counts, and does it.
        outputs = run(small, *generations)
        assert {name: ids(o) for name, o in outputs.items()} == expected
        assert preempted


def test_an_engine_that_dies_says_so_and_stays_dead(checkpoint: Checkpoint) -> None:
    with opened(checkpoint, SETTINGS) as engine:
        engine.add(Generation("r", prompt(checkpoint, "a"), Sampling(max_tokens=50)))
        engine.step()
        engine._core.collective_rpc(break_model)
        with pytest.raises(EngineDiedError, match="RuntimeError: out of order"):
            engine.step()
        for call in (
            engine.step,
            lambda: engine.abort(["r"]),
            lambda: engine.add(Generation("s", [1, 3])),
        ):
            with pytest.raises(EngineDiedError, match="out of order"):
                call()


def break_model(worker: object) -> None:
    """Make the loaded model fail in its next step, as a fault of the device does."""

    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    worker.model_runner.model.register_forward_pre_hook(fail)


def test_a_full_head_gives_the_whole_vocabulary(
    checkpoint: Checkpoint, reference: LlamaForCausalLM
) -> None:
    with opened(checkpoint, EngineSettings(head="full", max_streams=2)) as engine:
        assert engine.facts.slot_rule == "dropped"
        assert engine.facts.vocabulary_rows == checkpoint.vocabulary_size
        text = prompt(checkpoint, "so")
        got = run(engine, Generation("r", text, Sampling(0.0, 1.0, 1.0, max_tokens=5, logprobs=20)))
        first = next(row for output in got["r"] for row in output.logprobs or [])
        with torch.inference_mode():
            expected = reference(torch.tensor([text])).logits[0, -1].log_softmax(-1)
        assert max(abs(first[n] - float(expected[n])) for n in first) <= 1e-3


def test_bfloat16_agrees_to_a_twentieth(checkpoint: Checkpoint) -> None:
    model = LlamaForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.bfloat16).eval()
    with opened(checkpoint, EngineSettings(dtype="bfloat16", max_streams=2)) as engine:
        text = prompt(checkpoint, "wʌt ɪz ðə taɪm")  # noqa: RUF001
        outputs = run(engine, Generation("r", text, Sampling(max_tokens=22, logprobs=20)))["r"]
        found = [row for output in outputs for row in output.logprobs or []]
        assert compare(checkpoint, model, text, ids(outputs), found) <= 0.05


def test_untied_heads_are_cut_too(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_small_voice(tmp_path, live_codes=LIVE, tied=False))
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with opened(checkpoint, SETTINGS) as engine:
        text = prompt(checkpoint, "so")
        outputs = run(engine, Generation("r", text, Sampling(max_tokens=22, logprobs=20)))["r"]
        found = [row for output in outputs for row in output.logprobs or []]
        assert compare(checkpoint, model, text, ids(outputs), found) <= 1e-3


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"vllm_args": {"no_such": 1}},
            ConfigurationError,
            "no_such.*change the preset",
        ),
        ({"vllm_args": {"quantization": "gptq"}}, ConfigurationError, "does not start"),
        ({"kv_cache_mib": 0}, ConfigurationError, "does not start"),
        ({"sampler": "fused"}, ConfigurationError, "'fused' is a GPU's.*set sampler = 'auto'"),
        (
            {"sampler": "fused", "head": "full"},
            ConfigurationError,
            "set head = 'audio'",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_and_the_next_engine_opens(
    checkpoint: Checkpoint, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_engine(checkpoint, replace(SETTINGS, **changes))
    with opened(checkpoint, SETTINGS) as engine:
        assert ids(run(engine, Generation("r", [1, 3], Sampling(max_tokens=2)))["r"])


def test_a_closed_engine_says_so(checkpoint: Checkpoint) -> None:
    engine = open_engine(checkpoint, SETTINGS)
    engine.close()
    engine.close()
    with pytest.raises(EngineDiedError, match="the engine is closed"):
        engine.step()
