"""What a client may take before it is told no or cut off; docs/operating.md has them as a table."""

from __future__ import annotations

from dataclasses import dataclass

from server.errors import RequestError
from server.places import LONGEST_WAIT_S


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may take before it is told no or cut off."""

    stall_s: float = 60.0  # Without a byte taken from a stream's socket.
    body_bytes: int = 1 << 20
    body_s: float = 20.0  # For the whole body to come.
    config_s: float = 10.0  # From a socket's opening to its configuration.
    idle_s: float = 300.0  # Without a message or speech; a call has long silences.
    message_characters: int = 128 * 1024
    waiting_characters: int = 128 * 1024  # Of a socket's text that is not spoken yet.
    waiting_utterances: int = 64  # Of a socket, the one that is spoken included.
    queue_s: float = LONGEST_WAIT_S  # For a place, when all are taken.
    sockets: int = 1_000  # WebSockets that are open.
    connections: int = 2_000  # Of all kinds, those of sockets included.
    header_bytes: int = 32 * 1024  # A request's line and headers.
    headers_s: float = 10.0  # For them to come, from the connection or their own first byte.
    input_characters: int = 100_000  # Of one text: two hours of speech.
    # Of a text whose speech is collected before it is sent: 24 minutes at 14 characters a second.
    whole_characters: int = 20_000
    # Of that speech as it is played. Pauses and slow voices are longer than characters tell, and
    # what is collected is kept: 115 MB of PCM.
    whole_s: float = 2_400.0

    def check_input(self, text: str, *, whole: bool, speed: float = 1.0) -> None:
        """Refuse a text that is too long; spoken slowly, one that is collected is longer.

        Raises:
            RequestError: it has more characters than the limit.
        """
        name, limit, remedy = "input_characters", self.input_characters, "split it"
        slow = ""
        if whole and (most := int(self.whole_characters * min(1.0, speed))) < limit:
            name, limit = "whole_characters", most
            remedy = "have it streamed, or split it"
            slow = f" at speed {speed:g}" if speed < 1.0 else ""
        if len(text) > limit:
            raise RequestError(
                f"input has {len(text)} characters, more than {limit}{slow} (limit {name}); "
                f"{remedy}",
                param="input",
                code="string_above_max_length",
            )

    def check_whole(self, played_s: float) -> None:
        """Refuse to collect more of an answer that has become too long.

        Raises:
            RequestError: it plays for longer than the limit.
        """
        if played_s > self.whole_s:
            raise RequestError(
                f"the whole answer would play for more than {self.whole_s:g} s (limit whole_s), "
                "its pauses included; have it streamed, or split it",
                param="input",
                code="string_above_max_length",
            )
