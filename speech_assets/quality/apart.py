"""Whether the sentences that judge are apart from what was trained on: the corpus' transcripts.

Calibration's own texts are compared by `quantize.calibration.check_apart`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from speech_assets.quality.sentences import QUALITY_SENTENCES
from speech_assets.voice.held_out import overlaps

if TYPE_CHECKING:
    from resources.store import Store

_TEXT = "text_normalized"


def spoken_in_tokens(store: Store) -> list[str]:
    """Where token shards hold a sentence that judges, a line for each; empty where they hold none.

    Shards that are there are read, their texts alone; words count, in their order and without a
    gap, wherever in a transcript they stand.
    """
    held = [sentence.text for sentence in QUALITY_SENTENCES]
    found: list[str] = []
    for key in store.keys("tokens"):
        if not key.endswith(".parquet"):
            continue
        with store.open(key) as file:
            table = pq.read_table(file, columns=["id", _TEXT])
        ids, texts = table["id"].to_pylist(), table[_TEXT].to_pylist()
        found += [
            f"{key}, row {ids[overlap.id]}: {overlap.sentence!r}"
            for overlap in overlaps(enumerate(texts), held)
        ]
    return found
