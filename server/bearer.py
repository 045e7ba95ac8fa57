"""Bearer tokens: where they are read from, what they may look like, and whether one is right."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from server.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

VARIABLE = "SPEECH_SERVER_TOKEN"
SUBPROTOCOL = "speech"
"""What a page offers beside its token, and is answered: the token itself is never sent back."""
SUBPROTOCOL_TOKEN = "bearer."
"""Before a token in Sec-WebSocket-Protocol, where a browser's page cannot set another header."""

# What may stand in an Authorization header and in Sec-WebSocket-Protocol alike.
_TOKEN = re.compile(r"[A-Za-z0-9._~+-]{16,512}")


@dataclass(frozen=True, slots=True)
class BearerTokens:
    """Tokens that are let in; with none, everybody is. Only their digests are kept."""

    _digests: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def read(cls, variable: str | None, file: Path | None) -> Self:
        """Tokens of an environment variable, apart by white space or commas, and of a file's lines.

        In the file, lines that are empty or begin with # are left out.

        Raises:
            ConfigurationError: the file cannot be read or has no token, or a token is too short or
                has characters that do not fit into a header. No message shows a token.
        """
        given: list[tuple[str, str]] = []
        if variable is not None and variable.strip():
            given += [(VARIABLE, token) for token in re.split(r"[\s,]+", variable.strip())]
        if file is not None:
            try:
                lines = file.read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise ConfigurationError(
                    f"--token-file {str(file)!r} cannot be read: {reason}; give a file of one "
                    "token a line"
                ) from error
            found = [
                (f"{file}, line {number}", line.strip())
                for number, line in enumerate(lines, 1)
                if line.strip() and not line.startswith("#")
            ]
            if not found:
                # Not as good as none: whoever names a file does not mean an open server.
                raise ConfigurationError(f"--token-file {str(file)!r} has no token; put one a line")
            given += found
        for place, token in given:
            if not _TOKEN.fullmatch(token):
                raise ConfigurationError(
                    f"{place}: a token of {len(token)} characters cannot be used; take 16 to 512 "
                    "letters, digits and . _ ~ + -, as `openssl rand -hex 32` gives"
                )
        return cls(tuple(_digest(token) for _, token in given))

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, headers: Mapping[str, str], *, is_handshake: bool) -> bool:
        """Whether a request with these headers (names in lower case) is let in."""
        if not self._digests:
            return True
        token = presented(headers, is_handshake=is_handshake)
        return token is not None and self._has(token)

    def _has(self, token: str) -> bool:
        digest = _digest(token)
        # Every one is compared, each in constant time: how long it takes tells nothing.
        return any([hmac.compare_digest(digest, known) for known in self._digests])


def presented(headers: Mapping[str, str], *, is_handshake: bool) -> str | None:
    """The token that a request brings: `Authorization: Bearer`, or a socket's subprotocol.

    Of anything but a handshake a header of the same name is none: it may stand in logs.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if is_handshake:
        for offer in _offers(headers):
            if offer.startswith(SUBPROTOCOL_TOKEN):
                return offer.removeprefix(SUBPROTOCOL_TOKEN)
    return None


def subprotocol(headers: Mapping[str, str]) -> str | None:
    """The subprotocol to choose of those that a socket offers; browsers insist on one of them."""
    return SUBPROTOCOL if SUBPROTOCOL in _offers(headers) else None


def _offers(headers: Mapping[str, str]) -> Iterable[str]:
    offers = headers.get("sec-websocket-protocol", "").split(",")
    return [offer.strip() for offer in offers]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
