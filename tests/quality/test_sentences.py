"""The sentences that judge: of seven kinds, speakable, and in nothing that was trained on."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources.store import Store
from server.frames import read_layout
from server.text import TextEncoder
from speech_assets.quality.apart import spoken_in_tokens
from speech_assets.quality.sentences import KINDS, QUALITY_SENTENCES
from speech_assets.quantize.calibration import CalibrationError, check_apart, text_sets
from speech_assets.quantize.calibration_texts import CALIBRATION_TEXTS, HELD_OUT_TEXTS
from speech_assets.voice.held_out import overlaps
from speech_assets.voice.texts_templates import make_sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
EMBEDDED = ROOT / "speech_assets" / "corpus" / "embedded"
TEXTS = [sentence.text for sentence in QUALITY_SENTENCES]


def test_there_are_thirty_of_seven_kinds_and_the_first_ten_have_all() -> None:
    assert [sentence.id for sentence in QUALITY_SENTENCES] == list(range(30))
    counts = Counter(sentence.kind for sentence in QUALITY_SENTENCES)
    assert set(counts) == set(KINDS)
    assert len(KINDS) == 7
    assert min(counts.values()) >= 4
    assert {sentence.kind for sentence in QUALITY_SENTENCES[:10]} == set(KINDS)
    assert len(set(TEXTS)) == 30


def test_each_can_be_asked_of_the_embedded_voice_as_it_is() -> None:
    folder = ROOT / "server" / "embedded" / "voice"
    layout = read_layout(folder)
    encoder = TextEncoder(folder, layout)
    for text in TEXTS:
        assert 10 <= len(text) <= 290
        assert text.isascii()
        assert len(encoder.encode(text, layout.voices[0])) <= 400


def test_the_long_ones_are_long_and_the_short_ones_short() -> None:
    words = {kind: [] for kind in KINDS}
    for sentence in QUALITY_SENTENCES:
        words[sentence.kind].append(len(sentence.text.split()))
    assert max(words["short"]) <= 6
    assert min(words["long"]) >= 35
    assert all(any(c.isdigit() for c in s.text) for s in QUALITY_SENTENCES if s.kind == "numbers")


def test_none_is_in_texts_that_calibrate_or_judge_otherwise() -> None:
    check_apart(text_sets(CALIBRATION_TEXTS, HELD_OUT_TEXTS))
    assert not overlaps(enumerate((*CALIBRATION_TEXTS, *HELD_OUT_TEXTS)), TEXTS)
    with pytest.raises(CalibrationError, match=r"calibration texts and .*quality/sentences.py"):
        check_apart(text_sets([f"Listen. {TEXTS[0]} Good."], []))


def test_none_is_in_what_the_embedded_voice_learnt_from_templates() -> None:
    assert not overlaps(enumerate(make_sentences(2_000, random.Random(3))), TEXTS)


def test_none_is_in_the_transcripts_of_the_embedded_corpus() -> None:
    files = sorted(EMBEDDED.glob("*.parquet"))
    texts = [
        text
        for path in files
        for column in ("text_normalized", "text_original")
        for text in pq.read_table(path, columns=[column])[column].to_pylist()
    ]
    assert len(texts) > 1_000
    assert not overlaps(enumerate(texts), TEXTS)


def _shard(store: Store, key: str, texts: Sequence[str]) -> None:
    ids = [f"row-{number}" for number in range(len(texts))]
    table = pa.table({"id": ids, "text_normalized": list(texts), "codes": [[1]] * len(texts)})
    store.write(key, lambda file: pq.write_table(table, file))


def test_a_sentence_in_a_token_shard_is_found_wherever_it_stands(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert spoken_in_tokens(store) == []
    _shard(store, "tokens/train/train.000.parquet", ["Some other words.", "The blue one first."])
    store.write_bytes("tokens/README.md", b"a card is no shard")
    assert spoken_in_tokens(store) == []
    heard = f"And then: {TEXTS[0].lower().rstrip('.')} he said"
    _shard(store, "tokens/dev/dev.000.parquet", ["Nothing of it.", heard])
    assert spoken_in_tokens(store) == [
        f"tokens/dev/dev.000.parquet, row row-1: {TEXTS[0]!r}",
    ]
