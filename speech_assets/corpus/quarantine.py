"""Rows that cannot become training data: kept aside with a reason from a closed list, never dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence

Reason = Literal[
    "decode_error",
    "truncated",
    "empty",
    "too_short",
    "too_long",
    "no_speech",
    "non_finite",
    "missing_audio",
    "missing_text",
    "duplicate_id",
]
REASONS: tuple[Reason, ...] = get_args(Reason)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("row", pa.int64()),
        pa.field("path", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """One row set aside: `row` counts from 0 within the shard it came from."""

    id: str
    row: int
    path: str
    reason: Reason
    detail: str


def write_quarantine(rows: Sequence[QuarantinedRow], file: BinaryIO) -> None:
    """Write `rows` as parquet; a shard without any still gets its (empty) file."""
    columns = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
    pq.write_table(pa.table(columns, SCHEMA), file, compression="zstd")


def read_quarantine(file: BinaryIO) -> list[QuarantinedRow]:
    """Rows of a quarantine file."""
    return [QuarantinedRow(**row) for row in pq.read_table(file, schema=SCHEMA).to_pylist()]


def count_reasons(rows: Sequence[QuarantinedRow]) -> dict[str, int]:
    """Rows by reason, every reason of the list present."""
    counts: dict[str, int] = dict.fromkeys(REASONS, 0)
    for row in rows:
        counts[row.reason] += 1
    return counts
