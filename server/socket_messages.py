"""Messages of a WebSocket's client, in vLLM-Omni's words."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from server.sentences import Granularity
from server.speech_options import SpeechOptions, Strict


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


class InputText(Strict):
    """``input.text``: a piece of the text to speak, as it comes."""

    type: Literal["input.text"]
    text: str


class InputDone(Strict):
    """``input.done``: the utterance's text is complete."""

    type: Literal["input.done"]


class SessionCancel(Strict):
    """``session.cancel``: be silent; what is not spoken yet is dropped, the socket stays."""

    type: Literal["session.cancel"]


class SessionClose(Strict):
    """``session.close``: finish what was asked, then close."""

    type: Literal["session.close"]


ClientMessage = SessionConfig | InputText | InputDone | SessionCancel | SessionClose
MESSAGES: dict[str, type[ClientMessage]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(ClientMessage)
}
