"""How to speak: what HTTP bodies and WebSocket configurations have in common, and the body.

pydantic is used here and in `socket_messages`, at the edge, and nowhere further in. Types are
strict and unknown fields are refused: a request that is not understood must not be answered with
speech that was not asked for.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator

from server.errors import RequestError, any_of
from server.formats import AVAILABLE_FORMATS, DEFAULT_FORMAT, ResponseFormat

LONGEST_INSTRUCTIONS = 4_096

_VOICE_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}


class Strict(BaseModel):
    """What is understood as it is meant, or not at all."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SpeechOptions(Strict):
    """How to speak: what HTTP bodies and WebSocket configurations have in common.

    What is None was not said and follows the preset.
    """

    model: str | None = None
    voice: Annotated[str | None, WithJsonSchema(_VOICE_SCHEMA)] = None
    response_format: ResponseFormat | None = None
    speed: Annotated[float, Field(ge=0.25, le=4.0)] | None = None
    instructions: Annotated[str, Field(max_length=LONGEST_INSTRUCTIONS)] | None = None
    language: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    # Scores are divided by it: near 0 they would be beyond any float.
    repetition_penalty: Annotated[float, Field(ge=0.1, le=2)] | None = None
    lead_in: Literal["trim", "keep"] | None = None
    normalize: bool | None = None

    @field_validator("voice", mode="before")
    @classmethod
    def _voice_of_object(cls, value: object) -> object:
        # OpenAI's clients may send {"id": "tara"}.
        if isinstance(value, dict) and set(value) == {"id"} and value["id"] is not None:
            return value["id"]
        return value

    @property
    def ignored(self) -> list[str]:
        """Fields that are accepted for the sake of other servers' clients and have no effect."""
        return [name for name in ("instructions", "language") if getattr(self, name)]

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of the sampling that were given."""
        names = ("temperature", "top_p", "repetition_penalty", "seed")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def played_speed(self) -> float:
        """How much faster than spoken the audio is played."""
        return self.speed or 1.0

    def available_format(self) -> ResponseFormat:
        """The format of the audio; wav when none was asked for.

        Raises:
            RequestError: a format that this server's FFmpeg has no encoder for.
        """
        chosen = self.response_format or DEFAULT_FORMAT
        if chosen not in AVAILABLE_FORMATS:
            raise RequestError(
                f"response_format {chosen!r} is not available; use {any_of(AVAILABLE_FORMATS)}",
                param="response_format",
                code="unsupported_value",
            )
        return chosen


class SpeechBody(SpeechOptions):
    """Body of ``POST /v1/audio/speech``."""

    # Its length is a limit of the server's, see `limits`.
    input: Annotated[str, Field(json_schema_extra={"minLength": 1})]
    stream_format: Literal["audio", "sse"] | None = None
    stream: bool | None = None

    @field_validator("input")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty; send the text to speak")
        return value
