"""The HTTP routes: OpenAI's speech API, the WebSocket, what operators ask, and the page."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, WebSocket
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from server import openapi
from server.errors import RequestError
from server.formats import AVAILABLE_FORMATS
from server.gate import Gate
from server.head import HeadAsGet
from server.metrics import CONTENT_TYPE
from server.page_files import PAGE_FILES, add_page
from server.protocol import body_schema, parse_body, request_id
from server.refusals import SOCKET_PATH, add_refusals
from server.request_body import read_body
from server.response import SpeechResponse
from server.websocket import SpeechSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from server.serving import Serving

# What load balancers ask, and the page, which has to be there to be given a token.
_OPEN_PATHS = frozenset({"/health", "/ready", *PAGE_FILES})
_TOLD_TO_PAGES = (*openapi.SPEECH_HEADERS, "retry-after")
_PREFLIGHT_S = 600  # So long a browser need not ask again.
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
    app.add_middleware(HeadAsGet)
    app.add_middleware(Gate, serving=serving, open_paths=_OPEN_PATHS)
    if serving.allowed_origins:
        # Around the gate: a page of an allowed site may read why it was refused.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=serving.allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # OpenAI's client for browsers sends a dozen of its own.
            expose_headers=_TOLD_TO_PAGES,
            max_age=_PREFLIGHT_S,
        )
    _add_speech(app, serving)
    _add_names(app, serving)
    _add_operation(app, serving)
    add_page(app)
    add_refusals(app)
    return app


def _add_speech(app: FastAPI, serving: Serving) -> None:
    schema = {"content": {"application/json": {"schema": body_schema()}}, "required": True}

    @app.post(
        "/v1/audio/speech",
        openapi_extra={"requestBody": schema},
        response_class=Response,
        responses=openapi.speech(),
    )
    async def speech(request: Request) -> Response:
        """Speak a text; audio streams from the first chunk."""
        label = request_id(request.headers)
        try:
            # Before the body: a server that cannot speak need not read it.
            serving.ready_model()
            body = parse_body(await read_body(request, serving.limits))
            as_events = body.stream_format == "sse" or (
                body.stream_format is None
                and "text/event-stream" in request.headers.get("accept", "")
            )
            return SpeechResponse(serving, body, label, as_events=as_events)
        except RequestError as error:
            serving.refused("http", error, label)
            headers = {**error.headers(), "x-request-id": label}
            if error.status in (408, 413):
                # The rest of the body may still be coming; nobody reads it.
                headers["connection"] = "close"
            return JSONResponse(error.body(), error.status, headers)
        except ClientDisconnect:
            serving.broken_off("http", label)
            return Response(status_code=499)  # Nobody is there to get it.
        except asyncio.CancelledError:
            serving.broken_off("http", label)  # The server ends, and the body has not come.
            raise

    @app.websocket(SOCKET_PATH)
    async def stream(websocket: WebSocket) -> None:
        await SpeechSession(serving, websocket).run()


def _add_names(app: FastAPI, serving: Serving) -> None:
    def models() -> list[dict[str, Any]]:
        names = serving.model.names if serving.model else ()
        owner = {"object": "model", "created": serving.started_at, "owned_by": "speech-assets"}
        return [{"id": name, **owner} for name in names]

    @app.get("/v1/models", responses=openapi.refusals())
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": models()}

    # With all of 4xx told, FastAPI adds no 422 of its own, which is never answered.
    @app.get("/v1/models/{name}", responses=openapi.any_refusal())
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

    @app.get("/v1/audio/voices", responses=openapi.refusals(503))
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

    told = openapi.refusals(403, 501)

    @app.post("/v1/audio/voices", status_code=501, responses=told)
    @app.delete("/v1/audio/voices", status_code=501, responses=told)
    async def change_voices() -> Response:
        """Not implemented: voices cannot be cloned yet."""
        raise RequestError(
            "voices cannot be added or removed; GET /v1/audio/voices lists those that are built in",
            status=501,
            type="not_implemented_error",
            code="not_implemented",
        )

    @app.delete(
        "/v1/audio/voices/{name}", status_code=501, responses={**openapi.any_refusal(), **told}
    )
    async def remove_voice(name: str) -> Response:
        """Not implemented: voices cannot be cloned yet."""
        return await change_voices()


def _add_operation(app: FastAPI, serving: Serving) -> None:
    alive = openapi.state(
        "It serves or will; how many streams run, and how many requests wait",
        "The engine has died, or the model did not load: it will not serve any more",
    )

    @app.get("/health", responses=alive)
    async def health() -> Response:
        """How the server is; 503 when it will never serve again."""
        if serving.model is None:
            failed = serving.state == "failed"
            body = {"status": "failed" if failed else "ok", "active_streams": 0, "queued": 0}
        else:
            body = asdict(serving.model.service.health())
        return JSONResponse(body, 503 if body["status"] == "failed" else 200)

    may_ask = openapi.state(
        "Speech may be asked for",
        "It may not, now; `reason` says why: it loads, ends or has failed",
    )

    @app.get("/ready", responses=may_ask)
    async def ready() -> Response:
        """Whether a request sent now would be spoken."""
        is_ready = serving.state == "ready"
        body = {"ready": is_ready} | ({} if is_ready else {"reason": serving.reason})
        return JSONResponse(body, 200 if is_ready else 503)

    @app.get("/config", responses=openapi.refusals(503))
    async def config() -> dict[str, Any]:
        model = serving.ready_model()
        return {
            **model.config,
            "formats": AVAILABLE_FORMATS,
            "limits": asdict(serving.limits),
        }

    @app.get("/metrics", response_class=Response, responses=openapi.metrics())
    async def metrics() -> Response:
        if serving.scrape is not None:
            return Response(await serving.scrape(), media_type=CONTENT_TYPE)
        serving.show_state()
        return Response(serving.metrics.render(), media_type=CONTENT_TYPE)


async def _measure_lag(serving: Serving) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_EVERY_S
        await asyncio.sleep(_LAG_EVERY_S)
        # While it loads, imports hold the interpreter for seconds, and nobody is served.
        if serving.state != "loading":
            serving.metrics.event_loop_lag_seconds.observe(max(0.0, loop.time() - due_s))
