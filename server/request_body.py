"""The body of a request: plain, and within the limits of size and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.errors import RequestError

if TYPE_CHECKING:
    from starlette.requests import Request

    from server.limits import Limits


async def read_body(request: Request, limits: Limits) -> bytes:
    """All of a body.

    Raises:
        RequestError: it is compressed (415), too large (413), or too slow (408).
        ClientDisconnect: the client left within it.
    """
    _check_plain(request)
    too_large = RequestError(
        f"the body is larger than {limits.body_bytes} bytes; send less",
        code="body_too_large",
        status=413,
    )
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_s):
            async for part in request.stream():
                body += part
                if len(body) > limits.body_bytes:
                    raise too_large
    except TimeoutError as error:
        raise RequestError(
            f"the body did not come within {limits.body_s:g} s; send it at once",
            code="body_timeout",
            status=408,
        ) from error
    return bytes(body)


def _check_plain(request: Request) -> None:
    coding = ", ".join(request.headers.getlist("content-encoding")).strip()
    if coding and coding.lower() != "identity":
        raise RequestError(
            f"content-encoding {coding[:80]!r} is not taken; send the JSON as it is",
            code="unsupported_encoding",
            status=415,
        )
