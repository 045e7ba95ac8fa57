"""The fused sampler's kernel: what it keeps, and how often it draws.

Interpreted, where Triton is, and compiled, where a GPU is.
"""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from interpreted_kernels import run_interpreted

from server.frames import TOKENS_PER_FRAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HAS_TRITON = importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SUM_ERROR = 2e-6  # Of float32 sums and exponentials, as a share of all.


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton: make test-kernels")
@pytest.mark.timeout(900)
def test_the_interpreted_kernel_draws_as_it_says(tmp_path: Path) -> None:
    run_interpreted(__file__, tmp_path, 880)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA GPU")
@pytest.mark.filterwarnings("ignore")  # Triton's, of its own.
def test_the_compiled_kernel_draws_as_it_says(tmp_path: Path) -> None:
    interpreted(tmp_path)


def interpreted(folder: Path) -> None:
    """What the child of the first test runs, in a process whose Triton is an interpreter's."""
    del folder
    top_p_keeps_the_smallest_best_set()
    penalties_are_those_of_transformers()
    noise_is_gumbel()
    draws_come_as_often_as_they_should()
    only_the_due_slot_is_drawn_and_the_end_before_a_frame()
    a_draw_is_of_seed_and_position_alone()
    without_temperature_the_best_is_taken_and_the_first_of_equals()
    a_row_without_a_finite_logit_gives_an_id_of_its_slot()


@dataclass
class Asked:
    """Rows to draw, one request each; prompts and outputs are ids that each has."""

    codes: int
    logits: np.ndarray
    last: np.ndarray
    positions: np.ndarray
    seeds: np.ndarray
    temperature: float = 1.0
    top_p: float = 1.0
    penalty: float = 1.0
    prompts: list[list[int]] | None = None
    outputs: list[list[int]] | None = None


def drawn(asked: Asked, order: np.ndarray | None = None) -> np.ndarray:
    """Ids of the rows, in the batch in `order`; in the states their requests lie in another."""
    from server import engine_sampler_kernels as kernels

    rows, columns = asked.logits.shape
    order = np.arange(rows) if order is None else order
    place = (np.arange(rows) * 5 + 3) % (rows * 7)  # Of a row's request; 5 and 7 rows: no doubles
    assert len(set(place.tolist())) == rows
    size = rows * 7
    bits = np.zeros((size, -(-columns // 32)), np.int32)
    counts = np.zeros((size, columns + 9), np.int32)
    for row in range(rows):
        for token in (asked.prompts or [[]] * rows)[row]:
            bits.view(np.uint32)[place[row], token // 32] |= np.uint32(1 << (token % 32))
        for token in (asked.outputs or [[]] * rows)[row]:
            counts[place[row], token] += 1
    seeds = np.zeros(size, np.int64)
    seeds[place] = asked.seeds
    token = np.arange(rows) * 2 + 1  # Where a row's last token is among all that were computed.
    last, positions = np.zeros(rows * 2, np.int32), np.zeros(rows * 2, np.int64)
    last[token], positions[token] = asked.last[order], asked.positions[order]
    ids = torch.full((rows,), -1, dtype=torch.int64, device=DEVICE)
    given = on_device(asked.logits[order].astype(np.float32))
    kernels.draw[(rows,)](
        ids, given, given.stride(0),
        *map(on_device, (place[order].astype(np.int32), token, last, positions)),
        *(on_device(np.full(size, value, np.float32))
          for value in (asked.temperature, asked.top_p, asked.penalty)),
        on_device(seeds), on_device(bits), bits.shape[1], on_device(counts), counts.shape[1],
        CODES=asked.codes, FRAME=TOKENS_PER_FRAME,
        BLOCK=max(16, 1 << (asked.codes - 1).bit_length()),
    )  # fmt: skip
    found = np.empty(rows, np.int64)
    found[order] = ids.cpu().numpy()
    return found


def on_device(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.copy()).to(DEVICE)


def due_after(last: np.ndarray, codes: int) -> np.ndarray:
    """The slot rule in words of its own: after speech the next slot, after all else the first."""
    return np.where(last < 7 * codes, (last // codes + 1) % 7, 0)


def rows_of_scores(codes: int) -> Iterator[tuple[str, np.ndarray]]:
    """Scores of `codes` columns and the end, each with the name of its kind."""
    rng = np.random.default_rng(codes)
    for scale in (0.3, 2.0, 8.0):
        yield f"normal {scale}", rng.normal(0, scale, codes + 1)
    yield "flat", np.zeros(codes + 1)
    yield "tied", np.round(rng.normal(0, 2, codes + 1))
    yield "peaked", np.where(np.arange(codes + 1) == codes // 3, 30.0, rng.normal(0, 1, codes + 1))
    holes = rng.normal(0, 2, codes + 1)
    holes[rng.random(codes + 1) < 0.9] = -np.inf
    yield "mostly -inf", holes
    one = np.full(codes + 1, -np.inf)
    one[codes // 2] = 3.0
    yield "one", one
    end = rng.normal(0, 2, codes + 1)
    end[codes] = 12.0
    yield "end likely", end
    no_end = rng.normal(0, 2, codes + 1)
    no_end[codes] = -np.inf
    yield "no end", no_end


def top_p_keeps_the_smallest_best_set() -> None:
    from sampler_probes import keep

    def sorted_reference(weights: np.ndarray, top_p: float) -> np.ndarray:
        """Kept columns by sorting in float64: what is above each holds less than top_p; ties."""
        order = np.sort(weights)[::-1]
        sums = np.concatenate([[0.0], np.cumsum(order)])
        above = sums[np.searchsorted(-order, -weights, "left")]
        return (above < top_p * weights.sum()) & (weights > 0)

    exact = checked = 0
    for codes in (1_500, 4_096):
        for kind, scores in rows_of_scores(codes):
            row = scores.astype(np.float32)
            weights = np.exp(row.astype(np.float64) - float(row.max()))
            weights[row - row.max() < -87] = 0.0  # Below float32's least: nothing to tell apart.
            for top_p in (0.01, 0.5, 0.9, 0.999, 1.0):
                found = on_device(np.full(codes + 1, -1, np.int32))
                block = 1 << (codes - 1).bit_length()
                keep[(1,)](on_device(row), found, top_p, CODES=codes, BLOCK=block)
                kept = found.cpu().numpy() == 1
                p = float(np.float32(top_p))
                fewer = sorted_reference(weights, p - SUM_ERROR if p < 1 else p)
                more = sorted_reference(weights, p + SUM_ERROR)
                assert not (fewer & ~kept).any(), (kind, codes, top_p, fewer.sum(), kept.sum())
                assert not (kept & ~more).any(), (kind, codes, top_p, more.sum(), kept.sum())
                exact += int((fewer == more).all())
                checked += 1
    assert exact >= 0.85 * checked, (exact, checked)  # The others leave a choice by rounding.


def penalties_are_those_of_transformers() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    codes, rows, rng = 50, 14, np.random.default_rng(3)
    logits = rng.normal(0, 3, (rows, 7 * codes + 1)).astype(np.float32)
    slots = np.arange(rows) % 7
    last = (slots - 1) % 7 * codes
    best = []
    prompts, outputs = [], []
    for row, slot in enumerate(slots):
        own = logits[row, slot * codes : (slot + 1) * codes]
        order = np.argsort(-own) + slot * codes
        # The likeliest were in the prompt or the output; so were ids of other slots, and text.
        prompts.append([int(order[0]), int(order[3]), (slot + 3) % 7 * codes, 7 * codes + 4])
        outputs.append([int(order[1]), int(order[1]), 31])
        if row == 7:  # Slot 0: the end is likelier than all, and was before.
            logits[row, 7 * codes] = own.max() + 0.5
            outputs[-1].append(7 * codes)
        seen = torch.tensor([[n for n in prompts[-1] + outputs[-1] if n <= 7 * codes]])
        scores = torch.from_numpy(logits[None, row].copy())
        after = RepetitionPenaltyLogitsProcessor(2.0)(seen, scores)[0]
        mine = [*range(slot * codes, (slot + 1) * codes), *([7 * codes] if slot == 0 else [])]
        best.append(mine[int(after[mine].argmax())])
    asked = Asked(
        codes, np.pad(logits, ((0, 0), (0, 8))), last, np.arange(rows), np.arange(rows),
        temperature=0.0, penalty=2.0, prompts=prompts, outputs=outputs,
    )  # fmt: skip
    assert drawn(asked).tolist() == best
    asked.penalty = 1.0
    unpenalized = drawn(asked)
    assert (unpenalized != np.array(best)).sum() >= rows // 2
    penalized_scores_are_those_of_the_rule()


def penalized_scores_are_those_of_the_rule() -> None:
    from sampler_probes import penalize

    scores = np.linspace(-9, 9, 256).astype(np.float32)
    scores[200] = -np.inf
    prompt, output = [70, 95, 128, 159, 160], [71, 71, 95, 190, 199, 200]  # Bit 31: 95 and 159.
    bits, counts = np.zeros(8, np.uint32), np.zeros(256, np.int32)
    for n in prompt:
        bits[n // 32] |= np.uint32(1 << (n % 32))
    for n in output:
        counts[n] += 1
    after = on_device(scores)
    penalize[(1,)](after, on_device(bits.view(np.int32)), on_device(counts), 1.1, FIRST=70)
    found = after.cpu().numpy()
    expected = scores.copy()
    for n in {*prompt, *output} & set(range(70, 198)):
        expected[n] = scores[n] / np.float32(1.1) if scores[n] > 0 else scores[n] * np.float32(1.1)
    assert np.allclose(found, expected, rtol=5e-7, atol=0)
    assert found[198:].tolist() == scores[198:].tolist()


def noise_is_gumbel() -> None:
    from sampler_probes import noise

    count = 1 << 14
    given = [torch.empty(count, device=DEVICE) for _ in range(2)]
    noise[(1,)](*given, 123_456_789, COUNT=count)
    found, uniform = (values.double().cpu().numpy() for values in given)
    exact = -np.log(-np.log1p(-np.maximum(uniform, 4.6566127342e-10)))
    assert np.abs(found - exact).max() < 8e-6  # 4 steps of float32 at the largest.
    assert abs(found.mean() - 0.57722) < 4 * np.sqrt(np.pi**2 / 6 / count)
    assert abs(found.var() - np.pi**2 / 6) < 0.11  # 4 standard deviations, too.
    assert len(set(found.tolist())) > 0.98 * count


def draws_come_as_often_as_they_should() -> None:
    shares = np.array([0.22, 0.16, 0.12, 0.08, 0.05, 0.04, 0.03, 0.30])  # The last is the end's.
    codes, rows = len(shares) - 1, 360
    logits = np.full((rows, 7 * codes + 1), 50.0)  # Off the slot: would win if it were read.
    logits[:, :codes] = 0.7 * np.log(shares[:-1])
    logits[:, 7 * codes] = 0.7 * np.log(shares[-1])
    # Of 15 seeds at 24 positions each: both kinds of neighbours must differ as chance has it.
    seeds, positions = np.divmod(np.arange(rows), 24)
    for top_p in (1.0, 0.78):
        asked = Asked(
            codes, logits, np.full(rows, 7 * codes), positions + 30, seeds, 0.7, top_p
        )  # fmt: skip
        ids = drawn(asked)
        counts = np.bincount(np.where(ids == 7 * codes, codes, ids), minlength=len(shares))
        kept = shares if top_p == 1 else np.where(shares >= 0.12, shares, 0)
        expected = kept / kept.sum() * rows
        assert counts[expected == 0].sum() == 0
        likely = expected > 0
        chi = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
        # 1 in 10,000 of true draws is above: 29.9 of 7 degrees of freedom, 21.1 of 3.
        assert chi < (29.9 if top_p == 1 else 21.1), (top_p, chi, counts, expected)
        pairs = ids.reshape(15, 24)
        for a, b in ((pairs[:-1], pairs[1:]), (pairs[:, :-1], pairs[:, 1:])):
            same = float((a == b).mean())
            true = float(((kept / kept.sum()) ** 2).sum())
            assert abs(same - true) < 4.5 * np.sqrt(true * (1 - true) / a.size), (top_p, same, true)


def only_the_due_slot_is_drawn_and_the_end_before_a_frame() -> None:
    codes, rng = 40, np.random.default_rng(8)
    stop = 7 * codes
    last = np.array([*(s * codes + c for s, c in itertools.product(range(7), (0, 17, 39))),
                     stop, stop + 1, stop + 900])  # fmt: skip
    due = due_after(last, codes)
    rows = len(last)
    for temperature, end in itertools.product((0.0, 2.0), (-30.0, 60.0)):
        logits = rng.normal(0, 1, (rows, stop + 1))
        for row, slot in enumerate(due):
            off = np.ones(stop, bool)
            off[slot * codes : (slot + 1) * codes] = False
            logits[row, :stop][off] = rng.choice([90.0, np.nan, np.inf, -np.inf], int(off.sum()))
        logits[:, stop] = end
        asked = Asked(
            codes, logits, last, np.arange(rows), np.arange(rows), temperature
        )  # fmt: skip
        ids = drawn(asked)
        if end > 0:
            assert ((ids == stop) == (due == 0)).all()
        speech = ids[ids != stop]
        assert (speech // codes == due[ids != stop]).all()


def a_draw_is_of_seed_and_position_alone() -> None:
    codes, rows, rng = 90, 12, np.random.default_rng(1)
    logits = np.repeat(rng.normal(0, 1, (1, 7 * codes + 1)), rows, 0)
    seeds = np.repeat([5, 6, 2**62 + 11], 4)
    asked = Asked(
        codes, logits, np.full(rows, 7 * codes + 3), np.tile(np.arange(4), 3), seeds, 0.9, 0.95, 1.1
    )
    ids = drawn(asked)
    for order in (np.arange(rows)[::-1].copy(), rng.permutation(rows)):
        assert drawn(asked, order).tolist() == ids.tolist()
    alone = [
        int(drawn(Asked(codes, logits[n : n + 1], asked.last[n : n + 1],
                        asked.positions[n : n + 1], seeds[n : n + 1], 0.9, 0.95, 1.1))[0])
        for n in range(rows)
    ]  # fmt: skip
    assert alone == ids.tolist()
    assert len(set(ids.tolist())) >= 9  # Of 12 from 91, of other seeds and positions.


def without_temperature_the_best_is_taken_and_the_first_of_equals() -> None:
    codes, rows, rng = 70, 21, np.random.default_rng(2)
    logits = np.round(rng.normal(0, 1, (rows, 7 * codes + 1)), 1)
    last = np.arange(rows) % 7 * codes
    due = due_after(last, codes)
    logits[6, 7 * codes] = logits[6, :codes].max()  # The end comes after its equals.
    expected = [
        int(logits[row, slot * codes : (slot + 1) * codes].argmax()) + slot * codes
        for row, slot in enumerate(due)
    ]
    logits[13, 7 * codes] = 99.0
    assert due[6] == due[13] == 0
    expected[13] = 7 * codes
    logits[20, 7 * codes] = -9.0
    asked: dict[str, Any] = {"positions": np.arange(rows), "seeds": np.arange(rows)}
    assert drawn(Asked(codes, logits, last, temperature=0.0, **asked)).tolist() == expected


def a_row_without_a_finite_logit_gives_an_id_of_its_slot() -> None:
    codes = 20
    logits = np.full((2, 7 * codes + 1), -np.inf)
    for temperature in (0.0, 0.6):
        asked = Asked(
            codes, logits, np.array([0, 7 * codes]), np.arange(2), np.arange(2), temperature, 0.9
        )  # fmt: skip
        assert (drawn(asked) // codes).tolist() == [1, 0]
