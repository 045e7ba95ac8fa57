"""The fused sampler around vLLM's own V2 sampler, whose kernels are interpreted, where Triton is.

Which requests it takes is tested without Triton, too.
"""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from interpreted_kernels import run_interpreted

from server.engine import Sampling
from server.engine_core import sampling_params
from server.engine_rows import SampledRows

if TYPE_CHECKING:
    from pathlib import Path

    from vllm import SamplingParams

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.
HAS_TRITON = importlib.util.find_spec("triton") is not None
CODES, ROWS, VOCABULARY, PLACES = 40, 8, 400, 12
STOP = 7 * CODES
FACTS: Any = SimpleNamespace(head="audio", device="cuda")


def params(sampling: Sampling | None = None, **changes: Any) -> SamplingParams:
    """vLLM's form of a request, as the engine makes it, and changes that it never makes."""
    made = sampling_params(sampling or Sampling(), 100, STOP, FACTS)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0, seed=2**63 - 1),
        Sampling(temperature=2.0, top_p=1.0, repetition_penalty=1.0),
        Sampling(top_p=0.01, repetition_penalty=2.0, max_tokens=1),
    ],
)
def test_the_kernel_takes_every_request_of_the_server(sampling: Sampling) -> None:
    from server.engine_sampler_gpu import is_minded

    assert is_minded(params(sampling))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", 0),
        ("logprobs", 20),
        ("presence_penalty", 0.1),
        ("frequency_penalty", 0.1),
        ("top_k", 5),
        ("min_p", 0.1),
        ("min_tokens", 3),
        ("logit_bias", {3: 1.0}),
        ("allowed_token_ids", [3]),
        ("_bad_words_token_ids", [[3]]),
        ("prompt_logprobs", 1),
        ("logprob_token_ids", [3]),
    ],
)
def test_the_kernel_leaves_to_vllm_what_it_does_not_know(name: str, value: object) -> None:
    from server.engine_sampler_gpu import is_minded

    assert not is_minded(params(**{name: value}))


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton: make test-kernels")
@pytest.mark.timeout(900)
def test_the_sampler_draws_from_vllms_own_states(tmp_path: Path) -> None:
    run_interpreted(__file__, tmp_path, 880)


def interpreted(folder: Path) -> None:
    """What the child of the test above runs, in a process whose Triton is an interpreter's."""
    del folder
    _give_vllm_triton()
    greedy_ids_are_those_of_vllm()
    a_request_of_vllms_changes_no_other_draw_of_its_batch()
    a_prompt_that_is_not_all_in_gives_no_token()


def _give_vllm_triton() -> None:
    """Let vLLM's modules be of Triton, which it turns off on a CPU, and of memory of the host."""
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]
    import vllm.triton_utils

    vllm.triton_utils.triton, vllm.triton_utils.tl = triton, tl
    from vllm.v1.worker.gpu import buffer_utils

    setattr(buffer_utils, "is_uva_available", lambda: False)  # noqa: B010


class Bench:
    """vLLM's request states and sampler with a fused one around it; `ROWS` requests in them."""

    def __init__(self, requests: list[SamplingParams], seed: int = 0) -> None:
        from vllm.v1.worker.gpu.sample.sampler import Sampler
        from vllm.v1.worker.gpu.states import RequestState

        from server.engine_model import SpeechLlamaForCausalLM
        from server.engine_sampler_gpu import FusedSampler

        rng, device = np.random.default_rng(seed), torch.device("cpu")
        self.states = RequestState(PLACES, 128, 256, 0, VOCABULARY, device)
        config: Any = SimpleNamespace(reasoning_config=None)
        self.vllm = Sampler(config, PLACES, VOCABULARY, device, self.states)
        rows = SampledRows(CODES, 10, 2)
        model: Any = SimpleNamespace(rows=rows, off_slot=torch.tensor(rows.off_slot()))
        for name in ("slot_after", "mask_off_slot"):
            method = getattr(SpeechLlamaForCausalLM, name)
            setattr(model, name, lambda *args, _method=method: _method(model, *args))
        self.fused = FusedSampler(self.vllm, model)
        self.model = model
        self.prompts, self.outputs, self.places = [], [], []
        for n, request in enumerate(requests):
            prompt = (
                rng.integers(STOP + 1, VOCABULARY, 9).tolist() + rng.integers(0, STOP, 30).tolist()
            )
            output = [int(rng.integers(0, CODES)) + CODES * (k % 7) for k in range(20 + n)]
            self.states.add_request(f"r{n}", len(prompt), prompt + output, 0, 100)
            self.places.append(self.states.req_id_to_index[f"r{n}"])
            self.fused.add_request(self.places[-1], request)
            self.prompts.append(prompt)
            self.outputs.append(output)
        self.states.apply_staged_writes()
        self.fused.apply_staged_writes()
        self.logits = torch.from_numpy(
            rng.normal(0, 3, (len(requests), STOP + 1)).astype(np.float32)
        )

    def batch(self, rows: list[int]) -> Any:
        """An input batch of the requests of these rows, two computed tokens each."""
        count = len(rows)
        places = np.array([self.places[n] for n in rows], np.int32)
        lengths = [len(self.prompts[n]) + len(self.outputs[n]) for n in rows]
        at = torch.arange(count) * 2 + 1
        ids = torch.zeros(2 * count, dtype=torch.int32)
        positions = torch.zeros(2 * count, dtype=torch.int64)
        ids[at] = torch.tensor([self.outputs[n][-1] for n in rows], dtype=torch.int32)
        positions[at] = torch.tensor(lengths) - 1
        mapping = torch.from_numpy(places)
        lengths_ = torch.tensor(lengths, dtype=torch.int32)
        return SimpleNamespace(
            num_reqs=count, idx_mapping=mapping, idx_mapping_np=places,
            expanded_idx_mapping=mapping, cu_num_logits=torch.arange(count + 1, dtype=torch.int32),
            cu_num_logits_np=np.arange(count + 1, dtype=np.int32),
            expanded_local_pos=torch.zeros(count, dtype=torch.int32),
            positions=positions, input_ids=ids, logits_indices=at, seq_lens=lengths_,
            seq_lens_cpu_upper_bound=lengths_,
        )  # fmt: skip

    def fused_ids(self, rows: list[int]) -> list[int]:
        return (
            self.fused(self.logits[rows].clone(), self.batch(rows)).sampled_token_ids[:, 0].tolist()
        )

    def vllm_ids(self, rows: list[int]) -> list[int]:
        batch, logits = self.batch(rows), self.logits[rows].clone()
        self.model.mask_off_slot(
            logits, self.model.slot_after(batch.input_ids[batch.logits_indices])
        )
        return self.vllm(logits, batch).sampled_token_ids[:, 0].tolist()


ALL = list(range(ROWS))


def greedy_ids_are_those_of_vllm() -> None:
    greedy = [
        params(Sampling(temperature=0, repetition_penalty=[1.1, 1.9, 1.0][n % 3])) for n in ALL
    ]
    changed = 0
    for seed in range(4):
        bench = Bench(greedy, seed)
        got = bench.fused_ids(ALL)
        assert got == bench.vllm_ids(ALL)
        due = [(len(bench.outputs[n]) % 7) for n in ALL]
        free = [int(bench.logits[n, s * CODES : (s + 1) * CODES].argmax()) + s * CODES
                for n, s in enumerate(due)]  # fmt: skip
        changed += sum(a != b for a, b in zip(got, free, strict=True))
    assert changed >= 3  # Or the penalty would not have been tested.


def a_request_of_vllms_changes_no_other_draw_of_its_batch() -> None:
    seeded = [params(Sampling(seed=n + 3, temperature=1.0)) for n in ALL]
    bench = Bench(seeded)
    alone = bench.fused_ids(ALL)
    assert bench.fused_ids(ALL[::-1]) == alone[::-1]
    mixed = list(seeded)
    for n in (2, 5):
        mixed[n] = params(Sampling(seed=n + 3, temperature=1.0, logprobs=3))
    other = Bench(mixed)
    output = other.fused(other.logits.clone(), other.batch(ALL))
    ids = output.sampled_token_ids[:, 0].tolist()
    theirs = Bench(mixed).vllm_ids(ALL)
    assert ids == [theirs[n] if n in (2, 5) else alone[n] for n in ALL]
    assert [n // CODES for n in ids if n != STOP] == [
        len(other.outputs[n]) % 7 for n in ALL if ids[n] != STOP
    ]
    assert output.logprobs_tensors is not None
    assert output.logprobs_tensors.logprob_token_ids[[2, 5], 0].tolist() == [ids[2], ids[5]]
    assert bench.fused(bench.logits.clone(), bench.batch(ALL)).logprobs_tensors is None
    # A place that a request of vLLM's had is anyone's.
    other.fused.add_request(other.places[2], seeded[2])
    other.fused.add_request(other.places[5], seeded[5])
    other.fused.apply_staged_writes()
    assert other.fused_ids(ALL) == alone


def a_prompt_that_is_not_all_in_gives_no_token() -> None:
    bench = Bench([params() for _ in ALL])
    batch = bench.batch(ALL)
    batch.seq_lens[3] -= 5
    output = bench.fused(bench.logits.clone(), batch)
    assert output.num_sampled.tolist() == [int(n != 3) for n in ALL]
    assert output.num_rejected.tolist() == [0] * ROWS
    assert output.sampled_token_ids.dtype == torch.int64
