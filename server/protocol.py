"""What clients send, HTTP bodies and WebSocket messages, understood or refused."""

from __future__ import annotations

import json
import re
import reprlib
import uuid
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from server.errors import RequestError, any_of
from server.socket_messages import MESSAGES, ClientMessage, InputText
from server.speech_options import SpeechBody
from server.surrogates import joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

# Clients that know only OpenAI's model names get the model that is served.
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")

_BYTE_ORDER_MARK = "\ufeff"
_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80  # Characters of a value that is shown.
_Kind = TypeVar("_Kind", bound=BaseModel)


def parse_body(data: bytes) -> SpeechBody:
    """The speech request that `data` holds as JSON.

    Raises:
        RequestError: it is not JSON, or not such a request; `param` names the field.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not JSON: {error}", code="invalid_json") from error
    return _understood(SpeechBody, _whole(_object(text, "body")))


def parse_message(text: str) -> ClientMessage:
    """The message that `text` holds as JSON.

    Raises:
        RequestError: it is not JSON, there is no such type, or a field is wrong.
    """
    message = _object(text, "message")
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise RequestError(
            f"unknown message type {_shown(kind)}; send {any_of(tuple(MESSAGES))}",
            param="type",
            code="unknown_message",
        )
    fields = _whole(message)
    if MESSAGES[kind] is InputText and "text" in message:
        # What ends within a pair goes on with the next.
        fields["text"] = message["text"]
    return _understood(MESSAGES[kind], fields)


def check_model(name: str | None, served: tuple[str, ...]) -> None:
    """Refuse a model that is not the one served, whose names are `served`.

    Raises:
        RequestError: 404, as OpenAI answers.
    """
    if name is not None and name not in (*served, *OPENAI_MODELS):
        raise RequestError(
            f"model {name!r} does not exist here; this server speaks with {served[0]!r}",
            param="model",
            code="model_not_found",
            status=404,
        )


def request_id(headers: Mapping[str, str]) -> str:
    """The client's x-request-id if it is sane, else a new one. Only a label: it may repeat."""
    given = headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"


def body_schema() -> dict[str, Any]:
    """JSON schema of the speech body, for the OpenAPI document."""
    return SpeechBody.model_json_schema()


def _object(text: str, what: str) -> dict[str, Any]:
    """The object that `text` holds as JSON. Python's own parser: it keeps halves of pairs.

    Raises:
        RequestError: it is not JSON, or no object; `what` it is stands in the message.
    """
    try:
        value: object = json.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except RecursionError as error:
        words = f"the {what} is not JSON: it is nested too deeply"
        raise RequestError(words, code="invalid_json") from error
    except ValueError as error:
        raise RequestError(f"the {what} is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise RequestError(f"the {what} must be a JSON object", code="invalid_json")
    return cast("dict[str, Any]", value)


def _whole(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields whose names and texts can be encoded."""
    return {
        joined(name): joined(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _understood(model: type[_Kind], fields: dict[str, Any]) -> _Kind:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _refusal(error, model) from error


def _refusal(error: ValidationError, model: type[BaseModel]) -> RequestError:
    """The first thing wrong, in words that name the field, its value and the remedy."""
    first: ErrorDetails = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else None
    words = first["msg"].removeprefix("Value error, ")
    match first["type"]:
        case "missing":
            return RequestError(
                f"{field} is missing; it is required", param=field, code="missing_parameter"
            )
        case "extra_forbidden":
            known = any_of(tuple(sorted(model.model_fields)))
            return RequestError(
                f"unknown field {_shown(field)}; the fields are {known}",
                param=field,
                code="unknown_parameter",
            )
        case "string_too_long":
            limit = first.get("ctx", {}).get("max_length")
            return RequestError(
                f"{field} has {len(first['input'])} characters, more than {limit}; split it",
                param=field,
                code="string_above_max_length",
            )
        case "value_error":
            return RequestError(f"{field} {words}", param=field, code="invalid_value")
        case _:
            return RequestError(
                f"{field} is {_shown(first['input'])}: {words[0].lower()}{words[1:]}",
                param=field,
                code="invalid_value",
            )


def _shown(value: object) -> str:
    """A value as it is shown in a message, whatever its size and depth."""
    return _SHORT.repr(value)
