"""The HTTP routes: OpenAI's speech API, the WebSocket, what operators ask, and the page."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, WebSocket
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from server.metrics import CONTENT_TYPE
from server.protocol import AVAILABLE_FORMATS, RequestError, body_schema, parse_body, request_id
from server.response import SpeechResponse
from server.websocket import SpeechSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from server.serving import Serving

_PAGE = Path(__file__).parent / "page"
_PAGE_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/player.js": ("player.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_PAGE_HEADERS = {
    # Nothing from anywhere else, nothing inline; `ws:` because Safari's 'self' leaves sockets out.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self' ws: wss:; media-src 'self' blob:; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_LAG_EVERY_S = 0.05


def create_app(serving: Serving) -> FastAPI:
    """The application around `serving`, which may still be loading."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        lag = asyncio.create_task(_measure_lag(serving), name="loop-lag")
        yield
        lag.cancel()

    # Its documentation pages load scripts from other hosts.
    app = FastAPI(title="Speech server", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _broken)
    _add_speech(app, serving)
    _add_names(app, serving)
    _add_operation(app, serving)
    for path, (name, media) in _PAGE_FILES.items():
        app.add_api_route(
            path, _file(name, media), methods=["GET", "HEAD"], include_in_schema=False
        )
    return app


def _add_speech(app: FastAPI, serving: Serving) -> None:
    schema = {"content": {"application/json": {"schema": body_schema()}}, "required": True}

    @app.post("/v1/audio/speech", openapi_extra={"requestBody": schema}, response_class=Response)
    async def speech(request: Request) -> Response:
        """Speak a text; audio streams from the first chunk."""
        label = request_id(request.headers)
        try:
            # Before the body: a server that cannot speak need not read it.
            serving.ready_model()
            body = parse_body(await _body(request, serving))
            as_events = body.stream_format == "sse" or (
                body.stream_format is None
                and "text/event-stream" in request.headers.get("accept", "")
            )
            return SpeechResponse(serving, body, label, as_events=as_events)
        except RequestError as error:
            serving.refused("http", error)
            headers = {**error.headers(), "x-request-id": label}
            if error.status in (408, 413):
                # The rest of the body may still be coming; nobody reads it.
                headers["connection"] = "close"
            return JSONResponse(error.body(), error.status, headers)
        except ClientDisconnect:
            return Response(status_code=499)  # Nobody is there to get it.

    @app.websocket("/v1/audio/speech/stream")
    async def stream(websocket: WebSocket) -> None:
        if not _same_site(websocket.headers, serving.allowed_origins):
            # Before `accept`, this answers the handshake with 403.
            await websocket.close()
            return
        await SpeechSession(serving, websocket).run()


def _add_names(app: FastAPI, serving: Serving) -> None:
    def models() -> list[dict[str, Any]]:
        names = serving.model.names if serving.model else ()
        owner = {"object": "model", "created": serving.started_at, "owned_by": "speech-assets"}
        return [{"id": name, **owner} for name in names]

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": models()}

    @app.get("/v1/models/{name}")
    async def one_model(name: str) -> dict[str, Any]:
        for model in models():
            if model["id"] == name:
                return model
        raise RequestError(
            f"model {name!r} does not exist here; GET /v1/models lists those that do",
            param="model",
            code="model_not_found",
            status=404,
        )

    @app.get("/v1/audio/voices")
    async def list_voices() -> dict[str, Any]:
        voices = serving.ready_model().voices
        owned: list[tuple[str, str | None]] = [(name, None) for name in voices.own]
        data = [
            {
                "id": name,
                "object": "audio.voice",
                "type": "audio_sample",
                "name": name,
                "created_at": serving.started_at,
                "alias_of": alias_of,
            }
            for name, alias_of in [*owned, *voices.aliases.items()]
        ]
        return {
            "object": "list",
            "data": data,
            "has_more": False,
            # vLLM-Omni's clients read these two.
            "voices": [voice["id"] for voice in data],
            "uploaded_voices": [],
        }

    @app.post("/v1/audio/voices", status_code=501)
    @app.delete("/v1/audio/voices", status_code=501)
    @app.delete("/v1/audio/voices/{name}", status_code=501)
    async def change_voices(name: str | None = None) -> Response:
        """Not implemented: voices cannot be cloned yet."""
        raise RequestError(
            "voices cannot be added or removed; GET /v1/audio/voices lists those that are built in",
            status=501,
            type="not_implemented_error",
            code="not_implemented",
        )


def _add_operation(app: FastAPI, serving: Serving) -> None:
    @app.get("/health")
    async def health() -> Response:
        """How the server is; 503 when it will never serve again."""
        if serving.model is None:
            failed = serving.state == "failed"
            body = {"status": "failed" if failed else "ok", "active_streams": 0, "queued": 0}
        else:
            body = asdict(serving.model.service.health())
        return JSONResponse(body, 503 if body["status"] == "failed" else 200)

    @app.get("/ready")
    async def ready() -> Response:
        """Whether a request sent now would be spoken."""
        is_ready = serving.state == "ready"
        body = {"ready": is_ready} | ({} if is_ready else {"reason": serving.reason})
        return JSONResponse(body, 200 if is_ready else 503)

    @app.get("/config")
    async def config() -> dict[str, Any]:
        model = serving.ready_model()
        return {
            **model.config,
            "formats": AVAILABLE_FORMATS,
            "limits": asdict(serving.limits),
        }

    @app.get("/metrics")
    async def metrics() -> Response:
        if serving.model is not None:
            now = serving.model.service.health()
            serving.metrics.active_streams.set(now.active_streams)
            serving.metrics.queue_depth.set(now.queued)
        return Response(serving.metrics.render(), media_type=CONTENT_TYPE)


def _file(name: str, media: str) -> Any:
    content = (_PAGE / name).read_bytes()

    async def page() -> Response:
        return Response(content, media_type=media, headers=_PAGE_HEADERS)

    return page


async def _body(request: Request, serving: Serving) -> bytes:
    """The body of a request, within the limits of size and time."""
    limits = serving.limits
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


def _same_site(headers: Mapping[str, str], allowed: tuple[str, ...]) -> bool:
    """Whether a browser's page may open a socket here. Programs send no Origin and may."""
    origin = headers.get("origin")
    if origin is None or origin in allowed or "*" in allowed:
        return True
    try:
        return urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # Not an address at all.
        return False


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse(error.body(), error.status, error.headers())


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}; /openapi.json lists the routes"
    body = RequestError(message, code="not_found" if error.status_code == 404 else None).body()
    return JSONResponse(body, error.status_code, error.headers)


async def _broken(_: Request, error: Exception) -> Response:
    # The log has the traceback; its words may name what is none of a client's business.
    message = f"the server failed ({type(error).__name__}); its log says more"
    return JSONResponse(RequestError(message, type="server_error").body(), 500)


async def _measure_lag(serving: Serving) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_EVERY_S
        await asyncio.sleep(_LAG_EVERY_S)
        serving.metrics.event_loop_lag_seconds.observe(max(0.0, loop.time() - due_s))
