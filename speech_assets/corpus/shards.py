"""The parquet shards of each stage: schemas, metadata, fingerprints, reading and checking.

A shard's bytes depend on its input, the settings and the code version alone: no dates, no host, no
commit. Its schema metadata carries a fingerprint of exactly those, so that a rerun knows what is
still valid.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from server import frames
from speech_assets.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from _typeshed import DataclassInstance
    from numpy.typing import NDArray
    from typing_extensions import TypeIs

SCHEMA_VERSION = 1
# Bump when the same input would give another shard; they are in fingerprints and shown by Dagster.
SPEECH_CODE_VERSION = "1"  # Other samples or another verdict of the same archive row.
TOKEN_CODE_VERSION = "1"  # Other bytes of the same speech shard.
METADATA_PREFIX = "speech_assets."

_STRING = pa.string()
_AUDIO = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", _STRING)])
_TEXT_FIELDS = [
    pa.field(name, _STRING)
    for name in (
        "id",
        "speaker_id",
        "chapter_id",
        "text_normalized",
        "text_original",
        "source",
        "licence",
    )
]
_TRIM_FIELDS = [
    pa.field(name, pa.int32())
    for name in ("sample_count", "trim_start_samples", "trim_end_samples")
]

# LibriTTS-R's columns plus source and licence: what `archives` stores and `speech` reads.
ARCHIVE_SCHEMA = pa.schema([pa.field("audio", _AUDIO), pa.field("path", _STRING), *_TEXT_FIELDS])
# The one stored copy of PCM: 16-bit little-endian mono at 24 kHz, trimmed.
SPEECH_SCHEMA = pa.schema(
    [
        *_TEXT_FIELDS,
        *_TRIM_FIELDS,
        pa.field("source_rate_hz", pa.int32()),
        pa.field("gain", pa.float32()),
        pa.field("pcm", pa.large_binary()),
    ]
)
TOKEN_SCHEMA = pa.schema(
    [
        *_TEXT_FIELDS,
        *_TRIM_FIELDS,
        pa.field("frame_count", pa.int32()),
        pa.field("codes", pa.list_(pa.uint16())),
    ]
)


@dataclass(frozen=True, slots=True)
class Shard:
    """One partition: `key` is `<split>.<nnn>`."""

    split: str
    index: int

    @property
    def key(self) -> str:
        """Partition key, `<split>.<nnn>`."""
        return f"{self.split}.{self.index:03d}"

    def object_key(self, asset: str) -> str:
        """Key in the store of this shard of `asset` (archives, speech, tokens)."""
        return f"{asset}/{self.split}/{self.key}.parquet"

    def quarantine_key(self, asset: str) -> str:
        """Key in the store of the rows that `asset` set aside."""
        return f"quarantine/{asset}/{self.key}.parquet"

    @classmethod
    def parse(cls, key: str) -> Shard:
        """The shard of a partition key.

        Raises:
            ShardError: `key` is not `<split>.<nnn>`.
        """
        split, _, index = key.rpartition(".")
        if not is_split_name(split) or not index.isdecimal():
            raise ShardError(f"{key!r} is not a shard; shards are named <split>.<nnn>, train.000")
        return cls(split, int(index))

    @staticmethod
    def is_of(split: str, key: str) -> bool:
        """Whether `key` names a shard of `split`."""
        return key.rpartition(".")[0] == split


def is_split_name(name: str) -> bool:
    """Whether `name` can be a partition key and a folder name."""
    return name.replace("-", "").replace("_", "").isalnum()


def fingerprint(*parts: object) -> str:
    """Hash, 32 hex digits, of JSON-able values and dataclasses: what a shard was made from."""
    plain = [asdict(part) if _is_dataclass_instance(part) else part for part in parts]
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def with_metadata(schema: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """`schema` carrying `metadata` under the project's prefix, the schema version added."""
    values = {"schema_version": str(SCHEMA_VERSION), **metadata}
    return schema.with_metadata({METADATA_PREFIX + k: v for k, v in sorted(values.items())})


def metadata_of(schema: pa.Schema) -> dict[str, str]:
    """The project's metadata of a schema, without its prefix."""
    return {
        key.decode().removeprefix(METADATA_PREFIX): value.decode()
        for key, value in (schema.metadata or {}).items()
        if key.decode().startswith(METADATA_PREFIX)
    }


def read_footer(file: BinaryIO, schema: pa.Schema, where: str) -> tuple[dict[str, str], int]:
    """Metadata and row count of a stored shard, from its footer.

    Raises:
        ShardError: it is not parquet, or not of `schema`.
    """
    try:
        footer = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(
            f"{where} is not parquet: {str(error).strip()}; delete it and make it again"
        ) from error
    if not footer.schema_arrow.remove_metadata().equals(schema.remove_metadata()):
        raise ShardError(
            f"{where} has columns {footer.schema_arrow.names}, this version writes {schema.names}; "
            "delete it and make it again"
        )
    metadata = metadata_of(footer.schema_arrow)
    if metadata.get("schema_version") != str(SCHEMA_VERSION):
        raise ShardError(
            f"{where} has schema version {metadata.get('schema_version', 'none')}, this version"
            f" writes {SCHEMA_VERSION}; delete it and make it again"
        )
    return metadata, footer.metadata.num_rows


def iterate_rows(
    file: BinaryIO, columns: Sequence[str], batch_rows: int = 64, where: str = "a shard"
) -> Iterator[dict[str, Any]]:
    """Rows of a parquet file as dicts, a few in memory at a time; `where` names it in an error.

    Raises:
        ShardError: a page is damaged.
    """
    try:
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        for batch in parquet.iter_batches(batch_rows, columns=list(columns)):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # The disk or the network, not the bytes.
            raise
        raise ShardError(
            f"{where} is damaged: {str(error).strip()}; delete it and make it again"
        ) from error


def read_columns(file: BinaryIO, columns: Sequence[str], where: str = "a shard") -> pa.Table:
    """All rows of a parquet file, as Arrow has them.

    Raises:
        ShardError: a page is damaged.
    """
    try:
        return pq.ParquetFile(file, page_checksum_verification=True).read(list(columns))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # The disk or the network, not the bytes.
            raise
        raise ShardError(
            f"{where} is damaged: {str(error).strip()}; delete it and make it again"
        ) from error


def write_rows(
    file: BinaryIO,
    schema: pa.Schema,
    rows: Iterable[Mapping[str, Any]],
    *,
    row_group_rows: int = 64,
    compression_level: int = 3,
) -> int:
    """Write `rows` as zstd parquet and return how many there were; constant memory."""
    count = 0
    pending: list[Mapping[str, Any]] = []
    with pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=compression_level,
        write_page_checksum=True,
    ) as writer:
        for row in rows:
            pending.append(row)
            count += 1
            if len(pending) == row_group_rows:
                writer.write_table(_table(pending, schema))
                pending.clear()
        if pending or not count:
            writer.write_table(_table(pending, schema))
    return count


def token_row(speech: Mapping[str, Any], codes: NDArray[np.uint16]) -> dict[str, Any]:
    """The token row of a speech row and its codes (frames, 7)."""
    row = {name: speech[name] for name in TOKEN_SCHEMA.names if name in speech}
    return {**row, "frame_count": len(codes), "codes": codes.reshape(-1)}


def codes_of(row: Mapping[str, Any]) -> NDArray[np.uint16]:
    """Codes, uint16 of shape (frames, 7), of a token row."""
    return np.asarray(row["codes"], np.uint16).reshape(-1, frames.TOKENS_PER_FRAME)


def check_token_table(table: pa.Table) -> list[str]:
    """What is wrong with a table of token rows, one line a fault; empty when nothing is."""
    faults: list[str] = []
    if not table.schema.remove_metadata().equals(TOKEN_SCHEMA.remove_metadata()):
        return [f"columns are {table.schema.names}, must be {TOKEN_SCHEMA.names}"]
    codes = table["codes"].combine_chunks()
    flat, lengths = codes.flatten().to_numpy(), codes.value_lengths().to_numpy()
    ids = table["id"].to_pylist()
    frame_counts = table["frame_count"].to_numpy()
    sample_counts = table["sample_count"].to_numpy()
    if len(flat) and int(flat.max()) >= frames.CODEBOOK_SIZE:
        row = int(np.searchsorted(np.cumsum(lengths), int(flat.argmax()), side="right"))
        faults.append(f"row {ids[row]!r}: code {flat.max()} is above {frames.CODEBOOK_SIZE - 1}")
    for wrong, what in (
        (lengths != frame_counts * frames.TOKENS_PER_FRAME, "codes are not 7 a frame"),
        (frame_counts != -(-sample_counts // frames.SAMPLES_PER_FRAME), "frame_count does not fit"),
        (sample_counts <= 0, "no samples"),
    ):
        faults += [f"row {ids[row]!r}: {what}" for row in np.flatnonzero(wrong)[:3]]
    if len(set(ids)) != len(ids):
        faults.append("an id is there twice")
    if ids != sorted(ids):
        faults.append("rows are not sorted by id")
    return faults


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in schema.names}
    return pa.table(columns, schema=schema)


def _is_dataclass_instance(part: object) -> TypeIs[DataclassInstance]:
    return is_dataclass(part) and not isinstance(part, type)
