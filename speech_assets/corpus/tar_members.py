"""Members of a tar.gz in their order, read forwards only, up to the archive's true end.

Every size that an archive claims is bounded before anything is read by it: one damaged header, or a
small archive that is large inside, fills neither memory nor disk, and is not read for hours.
"""

from __future__ import annotations

import gzip
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

# LibriTTS-R's archives unpack to 1.14 times their size (room.py). What unpacks to so many times as
# much is no speech; the floor is for small archives, of clips that pack better.
LARGEST_UNPACKED_PER_PACKED = 4
SMALLEST_LIMIT_BYTES = 1 << 30
# A long name or a pax header: paths have at most 4,096 bytes. tarfile searches them in a time that
# grows with the square of their length.
_LARGEST_HEADER_BYTES = 16 << 10


class TarMembers:
    """What `open_members` gives: iterate, and `read` a member before the next is asked for."""

    def __init__(self, headers: _Headers, most_bytes: int) -> None:
        self._headers = headers
        self._most_bytes = most_bytes

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Every member, what it holds read or not.

        Raises:
            tarfile.ReadError: what is there is no archive, or claims more than it can have.
            EOFError: it ends before its end.
        """
        try:
            # Not tarfile's own stream mode: it takes 10 KiB at once, so that what lies behind a
            # damaged header near the end would be gone before it can be seen.
            with tarfile.open(fileobj=cast("BinaryIO", self._headers), mode="r:") as tar:
                while (info := tar.next()) is not None:
                    self._check_size(info)
                    yield info
                    cast("Any", tar).members.clear()  # A million would take a gigabyte.
        except (ValueError, RecursionError) as error:  # tarfile's, of nonsense in extended headers.
            raise tarfile.ReadError(f"a header is damaged: {error}") from error
        self._check_end()

    def read(self, info: tarfile.TarInfo) -> bytes:
        """The bytes of the member that came last.

        Raises:
            tarfile.ReadError: the archive ends within them.
        """
        data = self._headers.plain.read(info.size)
        if len(data) < info.size:
            raise tarfile.ReadError(f"{info.name} has {len(data)} of {info.size} bytes")
        return data

    def _check_size(self, info: tarfile.TarInfo) -> None:
        if info.size < 0:
            raise tarfile.ReadError(f"{info.name} claims {info.size} bytes")
        self._check_unpacked(self._headers.tell() + info.size)

    def _check_unpacked(self, so_far_bytes: int) -> None:
        if so_far_bytes > self._most_bytes:
            raise tarfile.ReadError(
                f"it unpacks to {so_far_bytes} bytes or more, an archive of its size to at most "
                f"{self._most_bytes}"
            )

    def _check_end(self) -> None:
        """Two blocks of zeros and zeros behind them; at their end is gzip's own checksum.

        tarfile takes the first block that is no header for the end.
        """
        last, plain = self._headers.last, self._headers.plain
        if len(last) < tarfile.BLOCKSIZE:
            raise EOFError("no end mark")
        zeros = 0
        data = last
        while data:
            if data.count(0) != len(data):
                raise tarfile.ReadError("what follows is no member")
            zeros += len(data)
            self._check_unpacked(plain.tell())
            data = plain.read(1 << 20)
        if zeros < 2 * tarfile.BLOCKSIZE:
            raise EOFError("half of an end mark")


class _Headers:
    """The plain bytes as tarfile may read them: headers, of bounded size."""

    def __init__(self, plain: BinaryIO) -> None:
        self.plain = plain
        self.last = b""
        """What was read last: the block that tarfile took for the end, when it says so."""

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LARGEST_HEADER_BYTES:
            raise tarfile.ReadError(
                f"a header claims {size} bytes, at most {_LARGEST_HEADER_BYTES} are taken"
            )
        self.last = self.plain.read(size)
        return self.last

    def seek(self, offset: int) -> int:
        return self.plain.seek(offset)

    def tell(self) -> int:
        return self.plain.tell()


@contextmanager
def open_members(archive: Path) -> Generator[TarMembers]:
    """The members of `archive`, a tar.gz; what raises them says what is wrong with it."""
    most_bytes = max(SMALLEST_LIMIT_BYTES, LARGEST_UNPACKED_PER_PACKED * archive.stat().st_size)
    with gzip.open(archive, "rb") as plain:
        yield TarMembers(_Headers(cast("BinaryIO", plain)), most_bytes)
