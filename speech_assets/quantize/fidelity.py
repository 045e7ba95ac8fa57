"""How far a checkpoint strays from its base model: divergence, agreement, perplexity, intervals.

Both models look at the same generations of the base model, token by token, and only at the codes
that may follow: those of the slot that is due, and end_of_speech where a frame may begin. All here
is arithmetic on such logits, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.frames import CODEBOOK_SIZE, TOKENS_PER_FRAME
from speech_assets.results.result import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from server.frames import TokenLayout

RESAMPLES = 10_000
SEED = 20_261_130
CONFIDENCE = 0.95
"""Of the intervals."""


@dataclass(frozen=True, slots=True)
class TokenMeasures:
    """Of each token of one generation, arrays of shape (tokens,).

    Attributes:
        kl_nats: KL divergence of the checkpoint's distribution from the base model's.
        agrees: whether both hold the same code to be the likeliest.
        base_nll_nats, nll_nats: minus the log probability of the token that came, under the base
            model and under the checkpoint.
    """

    kl_nats: NDArray[np.float64]
    agrees: NDArray[np.bool_]
    base_nll_nats: NDArray[np.float64]
    nll_nats: NDArray[np.float64]

    def of_slot(self, slot: int) -> TokenMeasures:
        """Those of one slot of the frame."""
        every = slice(slot, None, TOKENS_PER_FRAME)
        return TokenMeasures(
            self.kl_nats[every], self.agrees[every], self.base_nll_nats[every], self.nll_nats[every]
        )


def chosen_columns(token_ids: Sequence[int], layout: TokenLayout) -> NDArray[np.int64]:
    """The column of each token among the codes that may follow: its own, or `live_codes` for
    end_of_speech.

    Raises:
        ValueError: a token may not stand where it does.
    """
    ids = np.asarray(token_ids, np.int64)
    slots = np.arange(len(ids)) % TOKENS_PER_FRAME
    codes = ids - layout.audio_base - CODEBOOK_SIZE * slots
    ends = (ids == layout.end_of_speech) & (slots == 0)
    bad = np.flatnonzero(~ends & ((codes < 0) | (codes >= layout.live_codes)))
    if len(bad):
        where = int(bad[0])
        raise ValueError(f"id {ids[where]} at {where} may not follow in slot {slots[where]}")
    return np.where(ends, layout.live_codes, codes)


def log_probabilities(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Log-softmax of each token's `logits` (tokens, codes), in float64; -inf stays."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def token_measures(
    base_logits: NDArray[np.floating],
    logits: NDArray[np.floating],
    columns: NDArray[np.integer],
) -> TokenMeasures:
    """Measures of each token from both models' logits (tokens, codes) and the columns chosen.

    KL(base || checkpoint) = sum over codes of p_base (log p_base - log p), in nats.

    Raises:
        ValueError: the shapes differ, or a logit of the checkpoint is not a number.
    """
    if base_logits.shape != logits.shape or len(columns) != len(logits):
        raise ValueError(f"logits {base_logits.shape}, {logits.shape} of {len(columns)} tokens")
    may_follow = np.isfinite(base_logits)
    if not np.isfinite(logits[may_follow]).all():
        raise ValueError("the checkpoint gives logits that are not finite")
    base, other = log_probabilities(base_logits), log_probabilities(logits)
    gap = np.subtract(base, other, out=np.zeros_like(base), where=may_follow)
    chosen = np.arange(len(columns)), columns
    return TokenMeasures(
        # Rounding may put the sum of equal distributions a hair below 0.
        kl_nats=np.maximum((np.exp(base) * gap).sum(-1), 0.0),
        agrees=base.argmax(-1) == other.argmax(-1),
        base_nll_nats=-base[chosen],
        nll_nats=-other[chosen],
    )


def fidelity_figures(
    generations: Sequence[TokenMeasures], *, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, Figure]:
    """Figures of all generations together, overall and of each slot of the frame.

    `mean_kl_nats`, `top1_agreement` (a share), `perplexity`, `base_perplexity` and
    `perplexity_difference`, then each with `_slot_0` to `_slot_6`; n is tokens.

    Raises:
        ValueError: there is no generation with a token.
    """
    figures = _figures_of(generations, "", resamples, seed)
    for slot in range(TOKENS_PER_FRAME):
        of_slot = [generation.of_slot(slot) for generation in generations]
        if any(len(measures.kl_nats) for measures in of_slot):
            figures |= _figures_of(of_slot, f"_slot_{slot}", resamples, seed)
    return figures


def generation_row(measures: TokenMeasures) -> dict[str, float]:
    """The figures of one generation, for a result's rows."""
    base, own = measures.base_nll_nats.mean(), measures.nll_nats.mean()
    return {
        "tokens": len(measures.kl_nats),
        "mean_kl_nats": float(measures.kl_nats.mean()),
        "largest_kl_nats": float(measures.kl_nats.max()),
        "top1_agreement": float(measures.agrees.mean()),
        "base_perplexity": float(np.exp(base)),
        "perplexity": float(np.exp(own)),
    }


def resampled(
    totals: Mapping[str, NDArray[np.float64]],
    counts: NDArray[np.integer],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, NDArray[np.float64]]:
    """Means a token, shape (resamples,), of generations drawn anew with replacement.

    `totals` are sums of each generation and `counts` its tokens, both of shape (generations,).
    Generations are drawn, not tokens: those of one are alike, and taken for independent they would
    make the interval several times too narrow. All totals see the same draws.
    """
    generations = len(counts)
    draws = np.random.default_rng(seed).multinomial(
        generations, np.full(generations, 1 / generations), size=resamples
    )
    tokens = draws @ counts
    draws, tokens = draws[tokens > 0], tokens[tokens > 0]
    return {name: draws @ values / tokens for name, values in totals.items()}


def _figures_of(
    generations: Sequence[TokenMeasures], suffix: str, resamples: int, seed: int
) -> dict[str, Figure]:
    counts = np.array([len(measures.kl_nats) for measures in generations], np.int64)
    tokens = int(counts.sum())
    if not tokens:
        raise ValueError("there is no generation with a token to measure")
    totals = {
        name: np.array([getattr(measures, name).sum() for measures in generations], np.float64)
        for name in ("kl_nats", "agrees", "base_nll_nats", "nll_nats")
    }
    means = {name: np.array([values.sum() / tokens]) for name, values in totals.items()}
    drawn = resampled(totals, counts, resamples=resamples, seed=seed)
    units = {
        "mean_kl_nats": "nats",
        "top1_agreement": "share",
        "perplexity": "",
        "base_perplexity": "",
        "perplexity_difference": "",
    }
    values, samples = _derived(means), _derived(drawn)
    # One generation says nothing of how they differ.
    has_interval = np.count_nonzero(counts) > 1
    figures: dict[str, Figure] = {}
    for name, unit in units.items():
        low, high = np.quantile(samples[name], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        figures[f"{name}{suffix}"] = Figure(
            float(values[name][0]),
            unit,
            tokens,
            float(low) if has_interval else None,
            float(high) if has_interval else None,
        )
    return figures


def _derived(means: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Figures by name from means a token; perplexity is exp of the mean."""
    base, own = np.exp(means["base_nll_nats"]), np.exp(means["nll_nats"])
    return {
        "mean_kl_nats": means["kl_nats"],
        "top1_agreement": means["agrees"],
        "perplexity": own,
        "base_perplexity": base,
        "perplexity_difference": own - base,
    }
