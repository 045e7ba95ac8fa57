"""Rows that cannot become training data: set aside with a reason of a closed list, not dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from speech_assets.errors import ShardError

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


class AudioError(Exception):
    """A clip cannot be used; `reason` is one of the list above, `detail` says what was found."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail


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
    pq.write_table(pa.table(columns, SCHEMA), file, compression="zstd", write_page_checksum=True)


def read_quarantine(file: BinaryIO, where: str = "a quarantine file") -> list[QuarantinedRow]:
    """Rows of a quarantine file; `where` names it in an error.

    Raises:
        ShardError: it is damaged.
    """
    try:
        table = pq.read_table(
            file,
            schema=SCHEMA,
            page_checksum_verification=True,
            use_threads=False,
            pre_buffer=False,
        )
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # The disk or the network, not the bytes.
            raise
        raise ShardError(
            f"{where} is damaged: {str(error).strip()}; delete it and make its shard again"
        ) from error
    return [QuarantinedRow(**row) for row in table.to_pylist()]


def count_reasons(rows: Sequence[QuarantinedRow]) -> dict[str, int]:
    """Rows by reason, every reason of the list present."""
    counts: dict[str, int] = dict.fromkeys(REASONS, 0)
    for row in rows:
        counts[row.reason] += 1
    return counts
