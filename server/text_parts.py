"""The parts of a request's text, each made when it is due: cut, read and turned into a prompt.

What is too long for the model in prompt and speech together is cut again, so that no end is lost.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Protocol

from server.errors import BadRequestError, NothingToSpeakError
from server.frames import REALTIME_TOKENS_PER_S
from server.guards import Guard, GuardConfig
from server.passage import Part
from server.pieces import LONGEST_PIECE, Piece, halves, spoken_characters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.speech import SpeechRequest

# Phonemes, stresses and spaces of a letter, and what frames a prompt; tokenizers take fewer.
_PROMPT_TOKENS_PER_LETTER = 1.3
_PROMPT_TOKENS = 8


class Front(Protocol):
    """What cuts texts and makes prompts: `text.TextEncoder`."""

    def pieces(self, text: str, *, longest: int, normalize: bool) -> Iterator[Piece]:
        """What of a text can be said, in pieces of at most `longest` letters."""
        ...

    def encode(self, text: str, voice: str) -> list[int]:
        """Prompt ids of a piece."""
        ...


class TextParts:
    """The parts of one text, in order. For one thread at a time, whichever it is."""

    def __init__(self, text: Front, request: SpeechRequest, model_tokens: int) -> None:
        """`model_tokens` is what the model holds of prompt and speech."""
        self._text, self._request, self._model_tokens = text, request, model_tokens
        self._ahead: collections.deque[Piece] = collections.deque()
        self._pieces: Iterator[Piece] = iter(())

    @property
    def exhausted(self) -> bool:
        """Whether all parts have been given; known ahead but for pieces that have no sound."""
        self._look_ahead()
        return not self._ahead

    def first(self) -> Part:
        """The first part, with which `exhausted` is known, too.

        Raises:
            BadRequestError: nothing of the text can be spoken, or not by this model.
        """
        request = self._request
        self._pieces = self._text.pieces(
            request.text, longest=longest_piece(self._model_tokens), normalize=request.normalize
        )
        if (part := self.next()) is None:
            raise BadRequestError(
                str(NothingToSpeakError(request.text)), param="input", code="nothing_to_speak"
            )
        return part

    def next(self) -> Part | None:
        """The next part; None after the last.

        Raises:
            BadRequestError: it cannot be spoken.
        """
        while self._look_ahead():
            piece = self._ahead.popleft()
            try:
                ids = self._text.encode(piece.text, self._request.voice)
            except NothingToSpeakError:
                continue  # Of a script that the voice has no sounds for.
            except ValueError as error:
                raise BadRequestError(str(error), param="input") from error
            letters = spoken_characters(piece.text)
            if needed_tokens(letters, len(ids)) <= self._model_tokens:
                self._look_ahead()
                return Part(piece.text, letters, ids, piece.pause_s)
            parts = halves(piece)
            if len(parts) < 2:
                raise BadRequestError(
                    f"{piece.text[:40]!r} takes about {needed_tokens(letters, len(ids))} tokens, "
                    f"its speech included, and the model has {self._model_tokens}; serve it with "
                    "a larger max_model_len",
                    param="input",
                )
            self._ahead.extendleft(reversed(parts))
        return None

    def _look_ahead(self) -> bool:
        """Have the next piece at hand; whether there is one."""
        if not self._ahead and (piece := next(self._pieces, None)) is not None:
            self._ahead.append(piece)
        return bool(self._ahead)


def needed_tokens(letters: int, prompt_tokens: int) -> int:
    """Tokens of a prompt and of the speech that its letters should take."""
    return prompt_tokens + round(Guard(letters).expected_s * REALTIME_TOKENS_PER_S)


def longest_piece(model_tokens: int) -> int:
    """Letters of a piece that a model of so many tokens can speak whole; at least one."""
    config = GuardConfig()
    left = model_tokens - _PROMPT_TOKENS - config.pauses_s * REALTIME_TOKENS_PER_S
    each = _PROMPT_TOKENS_PER_LETTER + REALTIME_TOKENS_PER_S / config.characters_per_s
    return max(1, min(LONGEST_PIECE, int(left / each)))
