"""Rows dealt out to the shards that they belong to: an external sort in constant memory.

The ids alone decide which shard each row belongs to; one pass over the source appends each row to
the spool of its shard, of which one is open at a time; each spool is sorted when its turn comes.
However many shards there are: memory holds what waits to be written and one shard's rows.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from resources.process import is_gone, process_name
from speech_assets.corpus.shards import ARCHIVE_SCHEMA
from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

_PREFIX = "speech-assets-repack-"
_WAITING_BYTES = 64 << 20  # Audio in memory before it goes to the spools.
_ROW_BYTES = 1 << 10  # A row without its audio, about.


def assign_shards(ids: Sequence[str], shards: int) -> list[int]:
    """Shard of each row: sorted by id, dealt out evenly, rows of one id never parted.

    Rows of one id must meet in one shard, where the second is found to be a duplicate.
    """
    order = sorted(range(len(ids)), key=lambda row: ids[row])
    assigned = [0] * len(ids)
    for position, row in enumerate(order):
        same = position > 0 and ids[row] == ids[order[position - 1]]
        assigned[row] = assigned[order[position - 1]] if same else position * shards // len(ids)
    return assigned


@contextmanager
def spool_folder(where: Path | None = None) -> Generator[Path]:
    """A folder for spools below `where` (default: that of temporary files), gone afterwards.

    Raises:
        CorpusError: it cannot be made.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{process_name()}-", dir=where)
    except OSError as error:
        raise _refusal(where or "the folder of temporary files", error) from error
    with made as folder:
        yield Path(folder)


def remove_abandoned_spools(where: Path | None = None) -> None:
    """Delete what killed processes left; a corpus' spools can be as large as the corpus."""
    for folder in (where or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        if is_gone(folder.name.removeprefix(_PREFIX).rpartition("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)


def dealt_rows(
    rows: Iterable[dict[str, Any]], ids: Sequence[str], shards: int, folder: Path
) -> Iterator[list[dict[str, Any]]]:
    """Rows of the archive schema, whose ids are `ids`, as those of each shard in turn, sorted.

    Raises:
        CorpusError: the rows are not those of `ids`, or `folder` cannot hold them.
    """
    spools = [folder / f"{shard}.arrows" for shard in range(shards)]
    try:
        _deal(rows, ids, spools)
        for spool in spools:
            yield _spooled_rows(spool)
    except OSError as error:
        raise _refusal(folder, error) from error


def _deal(rows: Iterable[dict[str, Any]], ids: Sequence[str], spools: Sequence[Path]) -> None:
    waiting: dict[int, list[dict[str, Any]]] = {}
    waiting_bytes = dealt = 0

    def write() -> None:
        for shard, of_shard in waiting.items():
            table = pa.Table.from_pylist(of_shard, ARCHIVE_SCHEMA)
            with spools[shard].open("ab") as file, pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
        waiting.clear()

    assigned = assign_shards(ids, len(spools))
    for row in rows:
        if dealt == len(ids) or row["id"] != ids[dealt]:
            raise CorpusError(
                f"row {dealt} has id {row['id']!r}, it was "
                f"{'not there' if dealt == len(ids) else repr(ids[dealt])}: the source has changed "
                "while it was read; run again"
            )
        waiting.setdefault(assigned[dealt], []).append(row)
        dealt += 1
        waiting_bytes += len(row["audio"]["bytes"] or b"") + _ROW_BYTES
        if waiting_bytes >= _WAITING_BYTES:
            write()
            waiting_bytes = 0
    write()
    if dealt < len(ids):
        raise CorpusError(
            f"there are {dealt} rows, there were {len(ids)}: the source has changed while it was "
            "read; run again"
        )


def _spooled_rows(spool: Path) -> list[dict[str, Any]]:
    """Rows of a spool sorted by id; a shard's (at most 1,000 clips) are held in memory."""
    rows: list[dict[str, Any]] = []
    if spool.exists():  # A shard may have no row: those of one id are never parted.
        with spool.open("rb") as file:
            while file.peek(1):
                with pa.ipc.open_stream(file) as stream:
                    rows += stream.read_all().to_pylist()
        spool.unlink()
    # Stable: of rows with one id, the first of the source stays first and is the one kept.
    rows.sort(key=lambda row: row["id"])
    return rows


def _refusal(folder: object, error: OSError) -> CorpusError:
    return CorpusError(
        f"{folder} cannot hold the rows of a split while they are sorted: "
        f"{error.strerror or error}; free space, or set TMPDIR (of a download: the corpus' path) "
        "to a larger disk, then run again"
    )
