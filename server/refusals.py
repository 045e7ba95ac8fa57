"""Refusals as answers, OpenAI's form in each: of what a route refuses, and of what is no route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Request, WebSocket
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from server.errors import RequestError
from server.protocol import request_id

if TYPE_CHECKING:
    from fastapi import FastAPI

SOCKET_PATH = "/v1/audio/speech/stream"


def add_refusals(app: FastAPI) -> None:
    """Have `app` answer so; its routes for sockets must be there already."""
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _broken)
    app.add_api_websocket_route("/{path:path}", _no_socket)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse(error.body(), error.status, error.headers())


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # Not of `request.url`, which no address can be made of where the header Host is none.
    path = request.scope["path"]
    message = f"{request.method} {path}: {error.detail}; /openapi.json lists the routes"
    body = RequestError(message, code="not_found" if error.status_code == 404 else None).body()
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # A path may have a route for each of its methods; the router names those of the first.
        routes = [route for route in request.app.routes if route.matches(request.scope)[0].value]
        names = {name for each in routes for name in each.methods}
        headers["Allow"] = ", ".join(sorted(names | ({"HEAD"} if "GET" in names else set())))
    return JSONResponse(body, error.status_code, headers)


async def _no_socket(websocket: WebSocket) -> None:
    """Refuse a handshake at a path without one, for which the router has an empty 403."""
    message = f"{websocket.scope['path']}: no WebSocket here; it is at {SOCKET_PATH}"
    error = RequestError(message, code="not_found", status=404)
    headers = {"x-request-id": request_id(websocket.headers)}
    await websocket.send_denial_response(JSONResponse(error.body(), error.status, headers))


async def _broken(_: Request, error: Exception) -> Response:
    # The log has the traceback; its words may name what is none of a client's business.
    message = f"the server failed ({type(error).__name__}); its log says more"
    return JSONResponse(RequestError.of_server(message).body(), 500)
