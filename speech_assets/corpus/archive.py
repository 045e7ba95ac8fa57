"""A corpus' version and shards, whatever it is: files of this machine, or a publisher's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speech_assets.corpus import libritts, repack, sources, stored_split
from speech_assets.corpus.catalogue import taken_splits
from speech_assets.corpus.observation import Means, content_token, observe_split
from speech_assets.corpus.shards import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from resources.store import Store
    from speech_assets.corpus.stored_split import ArchivedShard
    from speech_assets.profiles import Corpus


def archive_split(
    corpus: Corpus, split: str, shards: int, store: Store, report: Callable[[str], None]
) -> tuple[list[ArchivedShard], bool]:
    """Store the shards of `split`; returns them and whether anything had to be done.

    Raises:
        SpeechAssetsError, ResourceError: the source is not what it must be, or cannot be had.
    """
    if corpus.kind == "libritts-r":
        return libritts.archive_split(corpus, split, shards, store, Means(report))
    files = sources.source_files(corpus)[split]
    return repack.repack_split(corpus, split, files, shards, store, report)


def code_version(corpus: Corpus) -> str:
    """Changes when the same source would give other shards."""
    return libritts.code_version() if corpus.kind == "libritts-r" else stored_split.CODE_VERSION


def source_version(corpus: Corpus, store: Store, report: Callable[[str], None]) -> str:
    """A hash that changes when what the corpus comes from does.

    Raises:
        SpeechAssetsError, ResourceError: it cannot be seen, or is not what it was published as.
    """
    if corpus.kind == "libritts-r":
        means = Means(report)
        observed = {
            split: content_token(observe_split(corpus, split, store, means))
            for split in taken_splits(corpus)
        }
        return fingerprint(observed)
    tokens = {
        split: [[file.token() for file in files], sources.audio_tokens(corpus, split, files)]
        for split, files in sources.source_files(corpus).items()
    }
    return fingerprint(tokens)
