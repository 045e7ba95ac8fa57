"""HEAD of every path that has GET, with GET's status and headers.

Plain ASGI around the routes, which know of GET alone; the server itself sends no body to a HEAD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class HeadAsGet:
    """Hands a HEAD to `app` as a GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            # Of a copy: by the one that it has, uvicorn knows to leave out the body.
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
