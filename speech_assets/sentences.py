"""Sentences of the project's own, for benchmarks: no text of a training holds them."""

from __future__ import annotations

SENTENCES = (
    "Our train leaves from the third platform at noon.",
    "Please leave the parcel with the woman next door.",
    "A cold wind blew the leaves across the empty square.",
    "He counted every coin twice and still came up short.",
    "The new teacher asked each child to draw a house.",
    "Fresh snow covered the road before the sun came up.",
    "You can borrow my umbrella if you bring it back.",
    "The kitchen smelled of bread, coffee and burnt sugar.",
    "Nobody noticed the small boat until it reached the shore.",
    "They painted the old fence green in a single day.",
)

LONG_SENTENCES = tuple(
    ", while ".join([first[:-1], *(said[:1].lower() + said[1:-1] for said in others)]) + "."
    for first, *others in zip(
        SENTENCES,
        SENTENCES[3:] + SENTENCES[:3],
        SENTENCES[6:] + SENTENCES[:6],
        strict=True,
    )
)
"""One clause after another, 160 letters or so: what takes ten seconds and more to say."""
