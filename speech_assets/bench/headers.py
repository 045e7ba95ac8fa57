"""Headers that a user gives for every request: read, and refused where they cannot work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from speech_assets.bench.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110's characters.
# What the client says itself, by what it sends; another value would be a lie.
_OWN = {
    *("content-length", "content-type", "content-encoding", "transfer-encoding"),
    *("accept-encoding", "connection", "upgrade", "expect", "te", "trailer"),
}


def read_header(text: str, number: int) -> tuple[str, str]:
    """Name and value of the `number`-th `--header`.

    Raises:
        BenchError: it is none. Its text is not repeated: it may be a secret.
    """
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    is_plain = value.isascii() and (not value or value.isprintable())
    if not colon or not _NAME.fullmatch(name) or not is_plain:
        raise BenchError(
            f"--header number {number} is not 'Name: value' in printable ASCII "
            "(it is not shown, as it may be a secret); write it so"
        )
    return name, value


def check_headers(headers: Sequence[tuple[str, str]], api: str, *, has_user: bool) -> None:
    """See that no header contradicts the client or the address.

    Raises:
        BenchError: one does.
    """
    for name, _ in headers:
        lower = name.lower()
        is_own = lower in _OWN or lower.startswith("sec-websocket-")
        if is_own or (lower == "host" and api == "ws"):
            raise BenchError(f"--header {name}: the client sets this itself; leave it out")
        if lower == "authorization" and has_user:
            raise BenchError(
                "--header Authorization and a user in --url are two answers to one question; "
                "leave one out"
            )
