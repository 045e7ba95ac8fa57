"""Sentences of Jane Austen's novels, from the R package janeaustenr as Debian ships it.

The texts are in an R database of lazily loaded objects: 4 bytes of length and a zlib stream for
each, holding lines of the books as R's strings. They are read without R.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from speech_assets.errors import CorpusError
from speech_assets.voice.texts_plain import plain_sentence

PACKAGE = "r-cran-janeaustenr"
DATABASE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
LICENCE = "public domain (Jane Austen, Project Gutenberg), in the MIT package janeaustenr"
_WORDS = (8, 26)
# A string in R's serialization: flags (0x09 is a CHARSXP; above it its encoding), then its length.
_STRING = re.compile(rb"\x00[\x00-\x04][\x00\x40\x80]\x09(\x00\x00[\x00-\xff]{2})", re.S)
_ABBREVIATION = re.compile(r"\b(Mr|Mrs|Dr|St|Col)\.")


def read_sentences(root: Path) -> tuple[str, ...]:
    """Sentences of the package that is installed, or unpacked, below `root`, in the books' order.

    Raises:
        CorpusError: the package is not there, or its database is of another form.
    """
    path = root / DATABASE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(
            f"{path}: {error.strerror}; unpack {PACKAGE} (apt-get download {PACKAGE}; dpkg-deb -x "
            "FILE DIR) and give --root DIR"
        ) from error
    found: dict[str, None] = {}
    for book in _objects(data):
        whole = _ABBREVIATION.sub(r"\1", " ".join(_strings(book)))
        for sentence in re.split(r"(?<=[.!?])\s+", whole):
            text = plain_sentence(sentence, fewest_words=_WORDS[0], most_words=_WORDS[1])
            # One that began in small letters is the rest of a sentence.
            if text and sentence.strip()[:1].isupper() and sentence.strip()[-1] in ".?!":
                found.setdefault(text)
    if not found:
        raise CorpusError(f"{path}: no sentences found in it; take version 1.0.0 of {PACKAGE}")
    return tuple(found)


def _objects(data: bytes) -> Iterator[bytes]:
    """Objects of the database, unpacked."""
    at = 0
    while at + 4 < len(data):
        stream = zlib.decompressobj()
        try:
            made = stream.decompress(data[at + 4 :])
        except zlib.error:
            return
        if not stream.eof:
            return
        yield made
        at = len(data) - len(stream.unused_data)


def _strings(data: bytes) -> Iterator[str]:
    """Strings of one serialized object, in order."""
    at = 0
    while match := _STRING.search(data, at):
        length = int.from_bytes(match[1], "big")
        end = match.end() + length
        text = data[match.end() : end]
        # Anything but text means that the bytes only looked like a string's head.
        if b"\x00" in text:
            at = match.start() + 1
            continue
        yield text.decode("utf-8", "replace")
        at = end
