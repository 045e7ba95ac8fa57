"""Corpora for benchmarks, made of the one that ships: many tiny shards, or LibriTTS-R's form."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

from server.frames import SAMPLE_RATE_HZ
from speech_assets.corpus import repack, sources
from speech_assets.corpus.archive import archive_split
from speech_assets.corpus.audio import decode_clip, to_pcm16
from speech_assets.corpus.quarantine import AudioError
from speech_assets.corpus.shards import Shard
from speech_assets.errors import ConfigError
from speech_assets.profiles import SHARD_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from resources.store import Store
    from speech_assets.profiles import Corpus, Profile

EMBEDDED = Path(__file__).parent / "embedded"
SPLIT = "train"
_SHORTEST = 16  # Clips that take turns.
_ROW_GROUP = 100
_ENCODING = ("device", "batch_samples", "compile", "precision", "kernels", "max_clip_s")


def tiny_corpus(folder: Path, shards: int) -> tuple[Path, list[str]]:
    """So many shards of one short clip each: what is left of a backfill is its bookkeeping.

    Gives a file of profiles in `folder`, whose profile `tiny` has the corpus, and its shards' keys.
    """
    table = _embedded()
    sizes = [len(clip["bytes"]) for clip in table.column("audio").to_pylist()]
    order = sorted(range(len(sizes)), key=sizes.__getitem__)[:_SHORTEST]
    taken = table.take([order[index % len(order)] for index in range(shards)])
    _write(folder, [_renamed(taken, 0)])
    return _profile(folder, "tiny", 1), [f"{SPLIT}.{index:03d}" for index in range(shards)]


@dataclass(frozen=True, slots=True)
class RepeatedCorpus:
    """The clips that ship so many times over, as LibriTTS-R has them: WAV of 24 kHz, 16 bits, one
    channel."""

    clips: pa.Table
    times: int

    @classmethod
    def of_shipped(cls, times: int) -> RepeatedCorpus:
        """Of the clips of the corpus that ships; what a tokenization sets aside is left out."""
        table = _embedded()
        clips: list[dict[str, object]] = []
        kept: list[int] = []
        for row, clip in enumerate(table.column("audio").to_pylist()):
            try:
                decoded = decode_clip(clip["bytes"], path=clip["path"] or "")
            except AudioError:
                continue
            held, samples = io.BytesIO(), to_pcm16(decoded.samples)
            soundfile.write(held, samples, SAMPLE_RATE_HZ, "PCM_16", format="WAV")
            clips.append({"bytes": held.getvalue(), "path": f"{row}.wav"})
            kept.append(row)
        table = table.take(kept)
        place = table.schema.get_field_index("audio")
        field = table.schema.field(place)
        return cls(table.set_column(place, field, pa.array(clips, field.type)), times)

    @property
    def size_bytes(self) -> int:
        """Bytes of all of it, before compression."""
        return self.times * self.clips.nbytes

    def write(
        self,
        folder: Path,
        profile: Profile,
        shards: int,
        written: Callable[[int], None] = lambda _: None,
    ) -> Path:
        """Write it in so many shards at least, 1,000 clips in one at most.

        `written` is told of each copy. Gives a file of profiles in `folder`, whose profile
        `repeated` is `profile` with this corpus.
        """
        _write(folder, self._copies(written))
        codec = profile.codec
        same = {name: getattr(profile, name) for name in _ENCODING}
        lines = [
            f"{name} = {json.dumps(value)}" for name, value in same.items() if value is not None
        ]
        lines += [
            "[codecs.repeated]",
            f"location = {json.dumps(codec.location)}",
            f"weights_sha256 = {json.dumps(codec.weights_sha256)}",
            f"allow_untrained = {json.dumps(codec.allow_untrained)}",
        ]
        shard_rows = max(1, min(SHARD_ROWS, self.times * self.clips.num_rows // shards))
        return _profile(folder, "repeated", shard_rows, "repeated", lines)

    def _copies(self, written: Callable[[int], None]) -> Iterator[pa.Table]:
        for number in range(self.times):
            yield _renamed(self.clips, number)
            written(1)


def archived(
    store: Store, corpus: Corpus, report: Callable[[str], None] = lambda _: None
) -> list[Shard]:
    """All shards of the corpus, their archives stored.

    Raises:
        SpeechAssetsError, ResourceError: the source is not what it must be, or cannot be had.
    """
    shards: list[Shard] = []
    for split, files in sources.source_files(corpus).items():
        count = repack.shard_count(sources.row_count(corpus, split, files), corpus.shard_rows)
        archive_split(corpus, split, count, store, report)
        shards += [Shard(split, index) for index in range(count)]
    return shards


def _embedded() -> pa.Table:
    files: Sequence[Path] = sorted(EMBEDDED.glob(f"{SPLIT}-*.parquet"))
    if not files:
        raise ConfigError(f"{EMBEDDED} holds no {SPLIT}-*.parquet; it ships with the project")
    return pa.concat_tables(pq.read_table(file) for file in files)


def _renamed(table: pa.Table, number: int) -> pa.Table:
    """The table with ids of its own, in the order of its rows."""
    place = table.schema.get_field_index("id")
    ids = [
        f"{number:04d}-{row:06d}-{name}" for row, name in enumerate(table.column("id").to_pylist())
    ]
    return table.set_column(place, table.schema.field(place), pa.array(ids, pa.string()))


def _write(folder: Path, tables: Iterable[pa.Table]) -> None:
    (folder / "corpus").mkdir(parents=True)
    path = folder / "corpus" / f"{SPLIT}-00000-of-00001.parquet"
    writer: pq.ParquetWriter | None = None
    for table in tables:
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=_ROW_GROUP)
    if writer is not None:
        writer.close()


def _profile(
    folder: Path, name: str, shard_rows: int, codec: str = "embedded", more: Sequence[str] = ()
) -> Path:
    path = folder / "profiles.toml"
    path.write_text(
        f"[corpora.{name}]\n"
        'kind = "parquet"\n'
        'path = "corpus"\n'
        f'splits = {{ {SPLIT} = "{SPLIT}-*.parquet" }}\n'
        f"shard_rows = {shard_rows}\n\n"
        f'[profiles.{name}]\ncorpus = "{name}"\ncodec = "{codec}"\n' + "\n".join([*more, ""])
    )
    return path
