"""Training rows: Orpheus' prompt, the clip's audio ids, one end of speech, prompt masked."""

from __future__ import annotations

import io

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from server.frames import ORPHEUS
from speech_assets.corpus.shards import TOKEN_SCHEMA, token_row, with_metadata, write_rows
from speech_assets.corpus.training import training_rows
from speech_assets.errors import ShardError

CODES = np.arange(21, dtype=np.uint16).reshape(3, 7)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A real byte-level BPE of 256 bytes, as Llama's is without its merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    built = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    return built


@pytest.fixture
def shard() -> io.BytesIO:
    row = {
        "id": "a",
        "speaker_id": "tara",
        "chapter_id": "",
        "text_normalized": "Grüße, שלום",
        "text_original": "",
        "source": "",
        "licence": "",
        "sample_count": 3 * 2_048 - 5,
        "trim_start_samples": 0,
        "trim_end_samples": 0,
    }
    file = io.BytesIO()
    write_rows(file, with_metadata(TOKEN_SCHEMA, {}), [token_row(row, CODES)])
    file.seek(0)
    return file


def test_a_row_is_prompt_audio_and_end_of_speech(shard: io.BytesIO, tokenizer: Tokenizer) -> None:
    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    (row,) = training_rows(shard, encode)
    prompt, answer = row.input_ids[: row.prompt_length], row.input_ids[row.prompt_length :]
    assert prompt.tolist() == ORPHEUS.prompt(encode("tara: Grüße, שלום"))
    assert tokenizer.decode(prompt[2:-4].tolist()) == "tara: Grüße, שלום"
    assert np.array_equal(ORPHEUS.codes(answer[:-1]), CODES)
    assert answer[-1] == ORPHEUS.end_of_speech
    assert row.labels.tolist() == [-100] * len(prompt) + answer.tolist()


def test_the_voice_can_be_named_or_left_out(shard: io.BytesIO) -> None:
    lengths = []
    for voice in (None, "leo", ""):
        shard.seek(0)
        (row,) = training_rows(shard, lambda text: [len(text)], voice=voice)
        lengths.append(int(row.input_ids[2]))
    text = len("Grüße, שלום")
    assert lengths == [text + len("tara: "), text + len("leo: "), text]


def test_something_else_than_a_token_shard_is_named() -> None:
    with pytest.raises(ShardError, match=r"shard\.parquet is not parquet"):
        list(training_rows(io.BytesIO(b"no"), lambda _: [], where="shard.parquet"))


def test_a_shard_of_another_schema_version_is_named() -> None:
    file = io.BytesIO()
    write_rows(file, TOKEN_SCHEMA, [])
    file.seek(0)
    with pytest.raises(ShardError, match="schema version none, this version writes 1"):
        list(training_rows(file, lambda _: []))
