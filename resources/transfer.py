"""The way of one file from its server into its part, over as many requests as it takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from resources.answer import OtherTagError, body_begins
from resources.errors import DownloadError
from resources.patience import LEAST_BYTES
from resources.remote import PassingError, passing, refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

    import httpx

    from resources.patience import Patience
    from resources.remote import RemoteFile


class Transfer:
    """Brings the bytes of `wanted` that `part`, an existing file, lacks.

    A server that sends the file from its start costs time and nothing that is here: what it sends
    is compared with the part, and written from where they differ or the part ends. So all bytes of
    a part are of one body, or of ranges that showed the same content.
    """

    def __init__(
        self,
        client: httpx.Client,
        wanted: RemoteFile,
        part: Path,
        *,
        judged: bool,
        patience: Patience,
        report: Callable[[str], None],
        at: Callable[[int], None],
    ) -> None:
        """`judged` says that a checksum will tell whether the whole is right, whatever its tag.

        `at` is told the byte that the body has reached.
        """
        self._client = client
        self._wanted = wanted
        self._part = part
        self._judged = judged
        self._patience = patience
        self._report = report
        self._at = at
        self._ranges = wanted.validator is not None
        self.received_bytes = 0
        """Bytes that came over the network."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the part."""
        return self._part.stat().st_size

    @property
    def is_whole(self) -> bool:
        """Whether the part has as many bytes as the file; never where nobody knows how many."""
        return self.held_bytes == self._wanted.size_bytes

    def go_on(self) -> None:
        """Ask for what is missing, and write it until the file is whole.

        Raises:
            PassingError: the rest did not come; what did is in the part.
            DownloadError: trying again cannot help.
        """
        held = self.held_bytes
        if held and self._ranges:
            if self._receive(held):
                return
            self._ranges = False  # Asked once: it would answer the same every time.
        self._receive(0)

    def _receive(self, asked: int) -> bool:
        """Take the body from byte `asked` on; False when the server has no such range."""
        headers: dict[str, str] = {}
        if asked and self._wanted.validator is not None:
            headers = {"Range": f"bytes={asked}-", "If-Range": self._wanted.validator}
        url = self._wanted.url
        with passing(url), self._client.stream("GET", url, headers=headers) as response:
            refuse(response, url)
            doubt: OtherTagError | None = None
            try:
                begin = body_begins(self._wanted, asked, response)
            except OtherTagError as error:
                if not self._judged:
                    raise
                begin, doubt = (0 if response.status_code == 200 else None), error
            if begin is None:
                return False
            if begin < (held := self.held_bytes):
                self._report(
                    f"{self._part.name}: the server does not go on at {held}; it sends the file "
                    "from the start, which is compared with what is here"
                )
            with self._part.open("r+b") as file:
                end = self._write(response, file, begin, doubt)
                if self._wanted.size_bytes in (None, end):
                    file.truncate(end)  # A part that was longer was of something else.
        if self._wanted.size_bytes is not None and end < self._wanted.size_bytes:
            raise PassingError(f"{url}: the body ended at byte {end} of {self._wanted.size_bytes}")
        return True

    def _write(
        self, response: httpx.Response, file: BinaryIO, begin: int, doubt: OtherTagError | None
    ) -> int:
        """Write a body that begins at byte `begin`; returns the byte at which it ended.

        `doubt` is raised when the body is not of the bytes that are here.
        """
        size_bytes = self._wanted.size_bytes
        held, byte = self.held_bytes, begin
        stall = _Stall(self._patience, byte)
        for chunk in response.iter_raw():  # As it comes: a break loses nothing.
            self.received_bytes += len(chunk)
            if size_bytes is not None and byte + len(chunk) > size_bytes:
                file.truncate(begin)
                raise DownloadError(
                    f"{self._wanted.url}: the server sends more than the {size_bytes} bytes that "
                    "the file has; take another mirror"
                )
            file.seek(byte)
            here = file.read(min(len(chunk), held - byte)) if byte < held else b""
            if not chunk.startswith(here):
                if doubt is not None:
                    raise doubt
                self._report(
                    f"{self._part.name}: the server sends other bytes than are here from {byte} "
                    f"on; {held - byte} bytes are deleted"
                )
                file.truncate(byte)
                held, here = byte, b""
            file.seek(byte + len(here))
            file.write(chunk[len(here) :])
            file.flush()  # A killed process loses none of it either.
            byte += len(chunk)
            self._at(byte)
            if (said := stall.at(byte)) is not None:
                raise PassingError(f"{self._wanted.url}: {said}")
        return byte


class _Stall:
    """Whether a body comes so slowly that it will never be whole; silence is the client's limit."""

    def __init__(self, patience: Patience, byte: int) -> None:
        self._patience = patience
        self._since_s, self._byte = time.monotonic(), byte

    def at(self, byte: int) -> str | None:
        """What is wrong when a body has reached `byte` now, None when nothing is."""
        now_s = time.monotonic()
        if byte - self._byte >= LEAST_BYTES:
            self._since_s, self._byte = now_s, byte
        elif now_s - self._since_s > self._patience.slow_s:
            return f"only {byte - self._byte} bytes came in {now_s - self._since_s:.0f} s"
        return None
