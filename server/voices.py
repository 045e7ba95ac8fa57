"""Names by which a voice can be asked for: the model's own, and OpenAI's as aliases of them."""

from __future__ import annotations

from dataclasses import dataclass

from server.errors import RequestError

# Clients such as Pipecat's refuse any other name before they ask.
OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx"),
    *("sage", "shimmer", "verse"),
)


@dataclass(frozen=True, slots=True)
class Voices:
    """The voices of one model, `own`, the first of which is the default."""

    own: tuple[str, ...]

    @property
    def aliases(self) -> dict[str, str]:
        """OpenAI's names, dealt out over the model's voices in order; an own voice wins."""
        return {
            name: self.own[index % len(self.own)]
            for index, name in enumerate(OPENAI_VOICES)
            if name not in self.own
        }

    def resolve(self, name: str | None) -> str:
        """The model's voice that `name` means, in any case; its first when None.

        Raises:
            RequestError: there is no such voice.
        """
        if name is None:
            return self.own[0]
        for known, voice in ({voice: voice for voice in self.own} | self.aliases).items():
            if known.casefold() == name.casefold():
                return voice
        raise RequestError(
            f"unknown voice {name!r}; the voices are {', '.join(self.own)} and, as aliases of "
            f"them, {', '.join(self.aliases)}",
            param="voice",
            code="voice_not_found",
        )
