"""What clients may ask, in HTTP bodies and WebSocket messages, and how they are told no.

pydantic is used here, at the edge, and nowhere further in. Types are strict and unknown fields are
refused: a request that is not understood must not be answered with speech that was not asked for.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import from_json

from server.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

# OpenAI's limit of one request; more is sent as sentences over the WebSocket.
LONGEST_INPUT = 4_096
LONGEST_INSTRUCTIONS = 4_096

ResponseFormat = Literal["pcm", "wav", "mp3", "opus", "aac", "flac", "mulaw"]
Granularity = Literal["none", "sentence", "clause"]
AVAILABLE_FORMATS: tuple[ResponseFormat, ...] = ("pcm", "wav")
CONTENT_TYPES: dict[ResponseFormat, str] = {"pcm": "audio/pcm", "wav": "audio/wav"}
# Clients that know only OpenAI's model names get the model that is served.
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")

_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}")
_INVALID = "invalid_request_error"


class RequestError(ServerError):
    """A request that is not answered with speech, with its status and OpenAI's error fields."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        type: str = _INVALID,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
        self.type = type
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """OpenAI's form: ``{"error": {"message", "type", "param", "code"}}``."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Headers that belong to the answer."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SpeechOptions(_Strict):
    """How to speak: what HTTP bodies and WebSocket configurations have in common.

    What is None was not said and follows the preset.
    """

    model: str | None = None
    voice: str | None = None
    response_format: ResponseFormat | None = None
    speed: Annotated[float, Field(ge=0.25, le=4.0)] | None = None
    instructions: Annotated[str, Field(max_length=LONGEST_INSTRUCTIONS)] | None = None
    language: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    lead_in: Literal["trim", "keep"] | None = None

    @field_validator("voice", mode="before")
    @classmethod
    def _voice_of_object(cls, value: object) -> object:
        # OpenAI's clients may send {"id": "tara"}.
        return value["id"] if isinstance(value, dict) and set(value) == {"id"} else value

    @property
    def ignored(self) -> list[str]:
        """Fields that are accepted for the sake of other servers' clients and have no effect."""
        return [name for name in ("instructions", "language") if getattr(self, name)]

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of the sampling that were given."""
        names = ("temperature", "top_p", "repetition_penalty", "seed")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def available_format(self) -> ResponseFormat:
        """The format of the audio; wav when none was asked for.

        Raises:
            RequestError: a format or a speed that this server does not make.
        """
        if self.speed not in (None, 1.0):
            raise RequestError(
                f"speed {self.speed:g} is not available; leave speed out or send 1.0",
                param="speed",
                code="unsupported_value",
            )
        chosen = self.response_format or "wav"
        if chosen not in AVAILABLE_FORMATS:
            raise RequestError(
                f"response_format {chosen!r} is not available; use {_any_of(AVAILABLE_FORMATS)}",
                param="response_format",
                code="unsupported_value",
            )
        return chosen


class SpeechBody(SpeechOptions):
    """Body of ``POST /v1/audio/speech``."""

    input: Annotated[str, Field(max_length=LONGEST_INPUT)]
    stream_format: Literal["audio", "sse"] | None = None
    stream: bool | None = None

    @field_validator("input")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty; send the text to speak")
        return value


class SessionConfig(SpeechOptions):
    """``session.config`` of the WebSocket, in vLLM-Omni's words.

    Fields that ask for what no voice of this server can do are known and refused, so that a client
    learns why; those that only tune vLLM-Omni's own models are ignored.
    """

    type: Literal["session.config"]
    speaker: str | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    stream_audio: bool = False
    split_granularity: Granularity = "none"
    session_ready: bool = False
    word_timestamps: bool | None = None
    ref_audio: Any = None
    ref_text: Any = None
    speaker_embedding: Any = None
    x_vector_only_mode: bool | None = None
    task_type: str | None = None
    initial_codec_chunk_frames: int | None = None
    non_streaming_mode: bool | None = None

    @field_validator("ref_audio", "ref_text", "speaker_embedding", "word_timestamps")
    @classmethod
    def _not_there(cls, value: object) -> object:
        if value not in (None, False, ""):
            raise ValueError("is not available; leave it out")
        return value

    @property
    def ignored(self) -> list[str]:
        """Fields that are accepted for the sake of other servers' clients and have no effect."""
        tuning = (
            *("instructions", "language", "task_type", "x_vector_only_mode"),
            *("initial_codec_chunk_frames", "non_streaming_mode"),
        )
        return [name for name in tuning if getattr(self, name)]

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of the sampling that were given."""
        given = super().sampling
        if self.max_new_tokens is not None:
            given["max_tokens"] = self.max_new_tokens
        return given


class InputText(_Strict):
    """``input.text``: a piece of the text to speak, as it comes."""

    type: Literal["input.text"]
    text: str


class InputDone(_Strict):
    """``input.done``: the utterance's text is complete."""

    type: Literal["input.done"]


class SessionCancel(_Strict):
    """``session.cancel``: be silent; what is not spoken yet is dropped, the socket stays."""

    type: Literal["session.cancel"]


class SessionClose(_Strict):
    """``session.close``: finish what was asked, then close."""

    type: Literal["session.close"]


ClientMessage = SessionConfig | InputText | InputDone | SessionCancel | SessionClose
MESSAGES: dict[str, type[ClientMessage]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(ClientMessage)
}


def parse_body(data: bytes) -> SpeechBody:
    """The speech request that `data` holds as JSON.

    Raises:
        RequestError: it is not JSON, or not such a request; `param` names the field.
    """
    try:
        return SpeechBody.model_validate_json(data)
    except ValidationError as error:
        raise _refusal(error, SpeechBody) from error


def parse_message(text: str) -> ClientMessage:
    """The message that `text` holds as JSON.

    Raises:
        RequestError: it is not JSON, there is no such type, or a field is wrong.
    """
    try:
        message = from_json(text)
    except ValueError as error:
        raise RequestError(f"the message is not JSON: {error}", code="invalid_json") from error
    if not isinstance(message, dict):
        raise RequestError("a message must be a JSON object", code="invalid_json")
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise RequestError(
            f"unknown message type {kind!r}; send {_any_of(tuple(MESSAGES))}",
            param="type",
            code="unknown_message",
        )
    try:
        return MESSAGES[kind].model_validate(message)
    except ValidationError as error:
        raise _refusal(error, MESSAGES[kind]) from error


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


def _refusal(error: ValidationError, model: type[BaseModel]) -> RequestError:
    """The first thing wrong, in words that name the field, its value and the remedy."""
    first: ErrorDetails = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else None
    words = first["msg"].removeprefix("Value error, ")
    match first["type"]:
        case "json_invalid":
            return RequestError(f"the body is not JSON: {words}", code="invalid_json")
        case "model_type" | "model_attributes_type":
            return RequestError("a JSON object is needed", code="invalid_json")
        case "missing":
            return RequestError(
                f"{field} is missing; it is required", param=field, code="missing_parameter"
            )
        case "extra_forbidden":
            known = _any_of(tuple(sorted(model.model_fields)))
            return RequestError(
                f"unknown field {field!r}; the fields are {known}",
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
            value = repr(first["input"])
            shown = value if len(value) <= 80 else value[:79] + "…"
            return RequestError(
                f"{field} is {shown}: {words[0].lower()}{words[1:]}",
                param=field,
                code="invalid_value",
            )


def _any_of(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
