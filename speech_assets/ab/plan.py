"""What both arms are asked for, and in which order, so that drift of the machine cancels out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from speech_assets.ab.arm import Letter
    from speech_assets.quality.sentences import Sentence

Order = Literal["turns", "blocks"]
"""turns: both servers are up, and each clip is asked of one arm and then of the other, A B B A.
blocks: one server at a time: A has the first half of the clips, then B all, then A the rest."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A sentence to be spoken with a seed."""

    sentence: Sentence
    seed: int


def asks(sentences: Sequence[Sentence], seeds: Sequence[int]) -> list[Ask]:
    """Every sentence with every seed, a sentence's seeds one after the other."""
    return [Ask(sentence, seed) for sentence in sentences for seed in seeds]


def turns(asked: Sequence[Ask]) -> list[tuple[Letter, Ask]]:
    """Each clip of both arms: A first for even numbers, B first for odd ones."""
    planned: list[tuple[Letter, Ask]] = []
    for number, ask in enumerate(asked):
        pair: tuple[Letter, Letter] = ("b", "a") if number % 2 else ("a", "b")
        for letter in pair:
            planned.append((letter, ask))
    return planned


def blocks(asked: Sequence[Ask]) -> list[tuple[Letter, list[Ask]]]:
    """A block of each server: half of A's clips, all of B's, the rest of A's; none is empty.

    The mean time at which a clip is asked for is the same in both arms, so that a steady drift
    falls out of the mean difference.
    """
    half = (len(asked) + 1) // 2
    planned: list[tuple[Letter, list[Ask]]] = [
        ("a", list(asked[:half])),
        ("b", list(asked)),
        ("a", list(asked[half:])),
    ]
    return [(letter, block) for letter, block in planned if block]


def texts_sha256(texts: Iterable[tuple[int, str]]) -> str:
    """Hash of the sentences that were asked for, by id and text, whatever their order and seeds."""
    text = json.dumps(sorted(set(texts)), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
