"""Small packages in the formats of the voice's real sources, a held-out sentence among them."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from speech_assets.voice import texts_austen, texts_wordnet

if TYPE_CHECKING:
    from pathlib import Path

NOUNS = (
    "river", "garden", "office", "harbour", "museum", "village", "station", "bridge", "market",
    "castle",
)  # fmt: skip
GLOSS = (
    "0{n:07d} 29 v 01 walk 0 001 @ 01835496 v 0000 01 + 02 00 | go on foot; "
    '"{one}"; "{two}" - some writer; "x"  \n'
)


def wordnet(root: Path, sentences: list[str]) -> None:
    """The package's files: a notice with two blanks before each line, then synsets."""
    folder = root / texts_wordnet.FOLDER
    folder.mkdir(parents=True)
    lines = ['  1 This software and database is provided "as is" without any warranty.\n']
    lines += [
        GLOSS.format(n=n, one=one, two=two)
        for n, (one, two) in enumerate(zip(sentences[::2], sentences[1::2], strict=True))
    ]
    for name in ("data.verb", "data.noun", "data.adj", "data.adv"):
        (folder / name).write_text("".join(lines), "latin-1")


def austen(root: Path, lines: list[str]) -> None:
    """An R database of two objects: a number, and a vector of strings as R serializes them."""
    strings = b"".join(
        b"\x00\x04\x00\x09" + struct.pack(">i", len(line)) + line.encode() for line in lines
    )
    head = b"X\n\x00\x00\x00\x03\x00\x03\x06\x00\x00\x02\x03\x00"
    number = head + b"\x00\x00\x00\x0e\x00\x00\x00\x01" + struct.pack(">d", 1811.0)
    vector = head + b"\x00\x00\x00\x10" + struct.pack(">i", len(lines)) + strings
    path = root / texts_austen.DATABASE
    path.parent.mkdir(parents=True)
    path.write_bytes(
        b"".join(struct.pack(">I", len(o)) + zlib.compress(o) for o in (number, vector))
    )


def write_sources(root: Path) -> None:
    """Both packages below `root`, as if unpacked there."""
    wholes = [f"He walked to the {noun} with friend number {c}." for noun in NOUNS for c in "abc"]
    phrases = [f"a quiet {noun} near the {other} road" for noun in NOUNS for other in NOUNS[:4]]
    held = "the golf ball was in an unplayable lie"
    wordnet(root, [*wholes, held, *phrases, "A dim light in it."])
    lines = [f"It was a fine day at the {noun} when Mr. Hill came to us." for noun in NOUNS]
    austen(root, [*lines, "there is no more of this; she said, and she", "left the room at once."])
