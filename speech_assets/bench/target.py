"""What a client process must know of the server, and how a request to it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speech_assets.bench.options import Api, Format
    from speech_assets.bench.schedule import Plan

# What any server of OpenAI's interface takes; its own body has both as required.
DEFAULT_MODEL = "tts-1"
DEFAULT_VOICE = "alloy"


@dataclass(frozen=True, slots=True)
class Target:
    """The server, and what is the same in every request.

    `is_ours`: it is this project's, which takes a seed and needs neither model nor voice; another
    might refuse a field that it does not know.
    """

    api: Api
    speech_url: str
    is_ours: bool
    format: Format
    texts: Sequence[str]
    voice: str | None
    model: str | None
    headers: dict[str, str]
    fresh_connections: bool
    timeout_s: float

    def body(self, plan: Plan) -> dict[str, Any]:
        """JSON of a request over HTTP."""
        return {
            "input": self.texts[plan.text],
            "response_format": self.format,
            **self._speaker(),
            **({"seed": plan.seed} if self.is_ours else {}),
        }

    def session(self, plan: Plan) -> dict[str, Any]:
        """`session.config` of a request over the WebSocket."""
        return {
            "type": "session.config",
            "response_format": self.format,
            "stream_audio": True,
            **self._speaker(),
            **({"seed": plan.seed, "session_ready": True} if self.is_ours else {}),
        }

    def _speaker(self) -> dict[str, str]:
        model = self.model or (None if self.is_ours else DEFAULT_MODEL)
        voice = self.voice or (None if self.is_ours else DEFAULT_VOICE)
        return {
            **({"model": model} if model else {}),
            **({"voice": voice} if voice else {}),
        }
