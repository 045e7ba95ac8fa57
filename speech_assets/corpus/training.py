"""Token shards as training rows: prompt, audio token ids and the end of speech."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from server.frames import ORPHEUS, TokenLayout
from speech_assets.corpus.shards import TOKEN_SCHEMA, codes_of, iterate_rows, read_footer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One utterance: ids of the whole sequence, and where the prompt ends and the loss begins."""

    id: str
    input_ids: NDArray[np.int64]
    prompt_length: int

    @property
    def labels(self) -> NDArray[np.int64]:
        """The ids with the prompt masked by -100, which torch's cross entropy ignores."""
        labels = self.input_ids.copy()
        labels[: self.prompt_length] = -100
        return labels


def training_rows(
    file: BinaryIO,
    tokenize: Callable[[str], Sequence[int]],
    *,
    layout: TokenLayout = ORPHEUS,
    voice: str | None = None,
    where: str = "token shard",
) -> Iterator[TrainingRow]:
    """Training rows of a token shard.

    Args:
        file: the shard, open for reading.
        tokenize: text to ids, without special ids (a `tokenizers.Tokenizer`'s
            `lambda text: tokenizer.encode(text, add_special_tokens=False).ids`).
        layout: ids of the model that is to be trained.
        voice: name in front of the text, as Orpheus is prompted; the row's speaker_id when None.
        where: the shard's name, for messages.

    Raises:
        ShardError: `file` is not a token shard, or is damaged.
    """
    read_footer(file, TOKEN_SCHEMA, where)
    columns = ["id", "speaker_id", "text_normalized", "codes"]
    for row in iterate_rows(file, columns, where=where):
        yield _training_row(row, tokenize, layout, row["speaker_id"] if voice is None else voice)


def _training_row(
    row: dict[str, Any],
    tokenize: Callable[[str], Sequence[int]],
    layout: TokenLayout,
    voice: str,
) -> TrainingRow:
    text = f"{voice}: {row['text_normalized']}" if voice else row["text_normalized"]
    prompt = layout.prompt(tokenize(text))
    audio = layout.token_ids(codes_of(row))
    ids = np.concatenate([np.array(prompt, np.int64), audio, [layout.end_of_speech]])
    return TrainingRow(row["id"], ids, len(prompt))
