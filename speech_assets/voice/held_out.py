"""The fixed sentences that judge the voice, none of which any part of it is trained on."""

from __future__ import annotations

HELD_OUT_IDS = range(70)
"""Ids of the texts kept out of training: 20 Harvard, 10 long, 40 WordNet ones."""
SETS: dict[str, tuple[int, ...]] = {
    "harvard": tuple(range(20)),
    "long": tuple(range(20, 30)),
    "wordnet": tuple(range(30, 70, 2)),
}
SPOKEN_IDS = tuple(i for ids in SETS.values() for i in ids)
"""The 50 sentences that the language model speaks."""
RESYNTHESISED_IDS = tuple(range(0, 70, 2))
"""The 35 recordings that the codec resynthesises."""
