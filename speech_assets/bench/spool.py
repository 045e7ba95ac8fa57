"""A file in which exchanges wait for the end of the load."""

from __future__ import annotations

import pickle
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speech_assets.bench.exchange import Exchange


class Spool:
    """Exchanges in a temporary file without a name, in the order in which they were kept.

    Raises:
        OSError: there is no place for a temporary file.
    """

    def __init__(self) -> None:
        self.folder = tempfile.gettempdir()
        # Unbuffered: what could not be written must not be tried again at the end.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 closed by `close`
        self._length = 0  # Of what is whole.

    def keep(self, exchange: Exchange) -> None:
        """Add one.

        Raises:
            OSError: there is no room for it; those before it are still whole.
        """
        left = memoryview(pickle.dumps(exchange, pickle.HIGHEST_PROTOCOL))
        length = len(left)
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError:
            self._file.truncate(self._length)
            self._file.seek(self._length)
            raise
        self._length += length

    def exchanges(self) -> Iterator[Exchange]:
        """All that were kept whole."""
        self._file.seek(0)
        while self._file.tell() < self._length:
            yield pickle.load(self._file)

    def close(self) -> None:
        """Drop them."""
        self._file.close()
