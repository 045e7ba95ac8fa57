"""What the routes answer, for the OpenAPI document; every refusal has OpenAI's form."""

from __future__ import annotations

from typing import Any

from server.formats import FORMATS

_NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
_ERROR: dict[str, Any] = {
    "title": "Error",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": _NULLABLE,
                "code": _NULLABLE,
            },
        }
    },
}
_WHEN = {
    400: "The request is wrong; `param` names the field",
    401: "The server wants a token and got none, or a wrong one",
    403: "A page of another site asks, and `--allow-origin` does not name it",
    404: "There is no such model",
    408: "The request did not come in time",
    413: "The body is too large",
    415: "The body is compressed",
    429: "No place is free; `Retry-After` says when one is likely to be",
    500: "The engine failed, or the model ended without having spoken",
    501: "Not implemented",
    503: "The model is loading, the server is ending, or too much is open",
}
SPEECH_HEADERS = {
    "x-request-id": "The request's, or a new one",
    "x-speech-seed": "With which the same speech can be had again",
    "x-speech-ignored": "Fields that were given and have no effect here, if there are any",
    "x-finish-reason": "How speech ended; of a whole answer (`stream` false)",
    "x-speech-frames": "Of how many frames it was made; of a whole answer (`stream` false)",
}
Responses = dict[int | str, dict[str, Any]]


def refusals(*statuses: int) -> Responses:
    """The answers of these statuses; of those that any route may give, too."""
    content = {"application/json": {"schema": _ERROR}}
    return {
        status: {"description": _WHEN[status], "content": content}
        for status in sorted({401, *statuses})
    }


def any_refusal() -> Responses:
    """Any refusal, of a route whose path holds a name."""
    content = {"application/json": {"schema": _ERROR}}
    words = "There is no such thing, or it may not be had"
    return {"4XX": {"description": words, "content": content}}


def speech() -> Responses:
    """The answers of ``POST /v1/audio/speech``."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    media = [each.content_type for each in FORMATS.values()]
    return {
        200: {
            "description": "Audio in the format that was asked for, or events with it",
            "content": {
                **dict.fromkeys(media, binary),
                "text/event-stream": {},
            },
            "headers": {
                name: {"description": words, "schema": {"type": "string"}}
                for name, words in SPEECH_HEADERS.items()
            },
        },
        **refusals(400, 403, 404, 408, 413, 415, 429, 500, 503),
    }


def metrics() -> Responses:
    """The answers of ``GET /metrics``."""
    refused = refusals(503)
    refused[503]["description"] = "The figures of all API processes did not come together in time"
    text = {"text/plain": {"schema": {"type": "string"}}}
    return {
        200: {"description": "Prometheus' text format, of all processes", "content": text},
        **refused,
    }


def state(description: str, otherwise: str) -> Responses:
    """An answer of 200, or `otherwise` of 503, the same object in both."""
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        200: {"description": description, "content": content},
        503: {"description": otherwise, "content": content},
    }
