"""Who is let in: bearer tokens, and pages of other sites kept out.

Plain ASGI around the routes, so that it is before everything else and in the way of no stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from server.errors import RequestError
from server.protocol import request_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from server.serving import Serving

_SPEECH_ROUTES = {"/v1/audio/speech": "http", "/v1/audio/speech/stream": "websocket"}
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """Lets a request through to `app`, or answers it with 401, 403 or 503.

    With tokens, all routes want one but the `open_paths`: what load balancers ask, and the page,
    which has to be there to be told a token.
    """

    def __init__(self, app: ASGIApp, serving: Serving, open_paths: frozenset[str]) -> None:
        self._app, self._serving, self._open_paths = app, serving, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        error = self._refusal(scope)
        if error is None:
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        label = request_id(Headers(scope=scope))
        if path in _SPEECH_ROUTES:
            is_socket = scope["type"] == "websocket"
            self._serving.refused("websocket" if is_socket else "http", error, label)
        headers = {**error.headers(), "x-request-id": label}
        if scope["type"] == "websocket":
            answer = JSONResponse(error.body(), error.status, headers)
            await WebSocket(scope, receive, send).send_denial_response(answer)
            return
        # Its body may still be coming, and nobody reads it.
        headers["connection"] = "close"
        await JSONResponse(error.body(), error.status, headers)(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestError | None:
        headers = Headers(scope=scope)
        is_socket = scope["type"] == "websocket"
        changes = is_socket or scope["method"] not in _HARMLESS
        if changes and not same_site(headers, self._serving.allowed_origins):
            return RequestError(
                f"a page of {headers['origin'][:200]!r} may not use this server; start it with "
                "--allow-origin and that name",
                status=403,
                code="origin_not_allowed",
            )
        is_let_in = self._serving.tokens.allow(headers, is_handshake=is_socket)
        if scope["path"] not in self._open_paths and not is_let_in:
            return RequestError(
                "the request has no token, or a wrong one; send the header `Authorization: Bearer` "
                "with a token that this server was given",
                status=401,
                code="invalid_api_key",
                authenticate="Bearer",
            )
        if is_socket and len(self._serving.sessions) >= self._serving.limits.sockets:
            return RequestError.of_server(
                f"{len(self._serving.sessions)} sockets are open, as many as may be; try again",
                status=503,
                code="too_many_sockets",
                retry_after_s=1,
            )
        return None


def same_site(headers: Mapping[str, str], allowed: tuple[str, ...]) -> bool:
    """Whether a browser's page may ask for this. Programs send no Origin and may."""
    origin = headers.get("origin")
    if origin is None or origin in allowed or "*" in allowed:
        return True
    try:
        return urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # Not an address at all.
        return False
