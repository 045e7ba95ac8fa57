"""A text front end for tests of what comes after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.errors import NothingToSpeakError
from server.pieces import Piece, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.checkpoint import Checkpoint


@dataclass(frozen=True)
class Letters:
    """A text front end whose phonemes are the text's own letters."""

    checkpoint: Checkpoint

    def pieces(self, text: str, *, longest: int, normalize: bool) -> Iterator[Piece]:
        """The text cut as any other."""
        del normalize
        return pieces(text, str, longest)

    def encode(self, text: str, voice: str) -> list[int]:
        """Prompt ids, a phoneme for each letter that the layout has."""
        layout = self.checkpoint.layout
        ids = [layout.phoneme_base + layout.phonemes.index(c) for c in text if c in layout.phonemes]
        if not ids:
            raise NothingToSpeakError(text)
        return layout.prompt(ids, voice)
