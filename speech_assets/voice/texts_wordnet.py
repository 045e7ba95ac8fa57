"""Example sentences of WordNet 3.0, from the files of the Debian package wordnet-base."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from speech_assets.errors import CorpusError
from speech_assets.voice.texts_plain import plain_sentence

PACKAGE = "wordnet-base"
FOLDER = "usr/share/wordnet"
LICENCE = "WordNet 3.0 licence (permissive; keep its notice), Copyright 2006 Princeton University"
_FILES = ("data.verb", "data.noun", "data.adj", "data.adv")
_WORDS = (4, 24)
_SENTENCE = re.compile(
    r"(I|He|She|It|We|They|You|The|This|That|There|These|Those|My|His|Her|Our|Your|Their|Some"
    r"|Do|Did|Does|Is|Are|Was|Were|Can|Could|Will|Would|What|Where|When|How|Who|Why|Which"
    r"|Please|Don't|Let|If)\b"
    r"|[A-Z][a-z]+ (is|was|are|were|has|had|have|will|can|must)\b"
)


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples in the files' order: whole sentences, and phrases ("a bright sunny day")."""

    sentences: tuple[str, ...]
    phrases: tuple[str, ...]


def read_examples(root: Path) -> Examples:
    """Examples of the package that is installed, or unpacked, below `root`.

    Raises:
        CorpusError: the package is not there.
    """
    found: dict[str, None] = {}
    for name in _FILES:
        path = root / FOLDER / name
        try:
            # Its files are in Latin-1; a line of a synset ends with " | " and its gloss.
            lines = path.read_text("latin-1").splitlines()
        except OSError as error:
            raise CorpusError(
                f"{path}: {error.strerror}; install {PACKAGE} (apt-get install {PACKAGE}), or "
                f"unpack it (apt-get download {PACKAGE}; dpkg-deb -x FILE DIR) and give --root DIR"
            ) from error
        for line in lines:
            gloss = line.partition(" | ")[2]
            for quoted in re.findall(r'"([^"]+)"', gloss):
                if text := plain_sentence(quoted, fewest_words=_WORDS[0], most_words=_WORDS[1]):
                    found.setdefault(text)
    whole = {text: bool(_SENTENCE.match(text)) for text in found}
    return Examples(
        tuple(text for text, is_whole in whole.items() if is_whole),
        tuple(text for text, is_whole in whole.items() if not is_whole),
    )
