"""Whether an answer is of the content that is wanted, and with which byte its body begins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from resources.errors import ChangedError, DownloadError
from resources.remote import DIGITS, RemoteFile, described

if TYPE_CHECKING:
    import httpx


class OtherTagError(ChangedError):
    """An answer's ETag or date is another, its size the same: other content, or another computer
    behind one address that has a tag of its own for the same bytes."""


def body_begins(wanted: RemoteFile, asked: int, response: httpx.Response) -> int | None:
    """Byte at which an answer's body begins, after a request for all from byte `asked` on.

    It is `asked` or 0; None when the body is not what was asked for, or does not show that it is of
    that very content: this server has no ranges that can be relied on.

    Raises:
        OtherTagError: it does not call itself by the tag of `wanted`.
        ChangedError: it is of other content than `wanted`.
        DownloadError: a part was sent where the whole was asked for.
    """
    now = described(response, wanted.url)
    if response.status_code == 200:
        _shows_same(wanted, now, now.size_bytes)
        return 0
    if not asked:
        raise DownloadError(
            f"{wanted.url}: the server answers {response.status_code} where the whole file was "
            "asked for; take another mirror"
        )
    start, total = _content_range(response)
    if response.status_code == 206:
        return asked if _shows_same(wanted, now, total) and start == asked else None
    # 416 may tell the size: no more than is here, and not the file's, is that of another file.
    if total is not None and total <= asked and wanted.size_bytes not in (None, total):
        raise ChangedError(_changed(wanted, "size", wanted.size_bytes, total))
    return None


def _shows_same(wanted: RemoteFile, now: RemoteFile, size_bytes: int | None) -> bool:
    """Whether an answer says that it is of that very content.

    Only the ETag where both have one: computers behind one address may date the same bytes
    differently.

    Raises:
        OtherTagError, ChangedError: it says that it is of another.
    """
    if None not in (wanted.size_bytes, size_bytes) and wanted.size_bytes != size_bytes:
        raise ChangedError(_changed(wanted, "size", wanted.size_bytes, size_bytes))
    for what, before, after in (
        ("ETag", wanted.etag, now.etag),
        ("Last-Modified", wanted.last_modified, now.last_modified),
    ):
        if before is not None and after is not None:
            if before != after:
                raise OtherTagError(_changed(wanted, what, before, after))
            return True
    return False


def _changed(wanted: RemoteFile, what: str, before: object, now: object) -> str:
    return (
        f"{wanted.url} has changed: its {what} was {before}, is {now}; nothing of it was taken: "
        "run again, which observes it anew, or take another mirror"
    )


def _content_range(response: httpx.Response) -> tuple[int | None, int | None]:
    """First byte and size of the whole that Content-Range tells."""
    match = re.fullmatch(
        rf"bytes (?:({DIGITS})-{DIGITS}|\*)/({DIGITS}|\*)",
        response.headers.get("Content-Range", ""),
    )
    if match is None:
        return None, None
    start, total = match.groups()
    return (
        int(start) if start is not None else None,
        int(total) if total != "*" else None,
    )
