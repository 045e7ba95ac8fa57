"""Partition keys of the profile in force: splits, shards, and the maps between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from speech_assets.corpus.repack import shard_count
from speech_assets.corpus.shards import Shard
from speech_assets.corpus.sources import row_count, source_files

if TYPE_CHECKING:
    from speech_assets.profiles import Corpus


@dataclass(frozen=True)
class CorpusPartitions:
    """Splits and shards of one corpus.

    A shard is one-dimensional, `<split>.<nnn>`: splits differ in their number of shards, so that
    Dagster's multi-dimensional partitions would show cells that cannot exist.
    """

    splits: dg.StaticPartitionsDefinition
    shards: dg.StaticPartitionsDefinition
    shards_of_split: dict[str, list[str]]

    @property
    def split_to_shards(self) -> dg.StaticPartitionMapping:
        """From a split upstream to its shards downstream."""
        return dg.StaticPartitionMapping(self.shards_of_split)

    @property
    def shards_to_split(self) -> dg.StaticPartitionMapping:
        """From shards upstream to their split downstream."""
        return dg.StaticPartitionMapping(
            {shard: split for split, shards in self.shards_of_split.items() for shard in shards}
        )


def corpus_partitions(corpus: Corpus) -> CorpusPartitions:
    """Partitions of `corpus`, from its files' row counts; no row is read.

    Raises:
        SpeechAssetsError: the corpus is not where its row says, or not what it says.
    """
    shards: dict[str, list[str]] = {}
    for split, files in source_files(corpus).items():
        count = shard_count(row_count(corpus, split, files), corpus.shard_rows)
        shards[split] = [Shard(split, index).key for index in range(count)]
    return CorpusPartitions(
        dg.StaticPartitionsDefinition(list(shards)),
        dg.StaticPartitionsDefinition([key for keys in shards.values() for key in keys]),
        shards,
    )
