"""What the server and its codec raise: every message names the value, its place and the remedy."""

from __future__ import annotations

import reprlib
from typing import Any

_MOST_SHOWN = 200  # Characters of a value: a path is whole, and a line stays one that is read.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _MOST_SHOWN


class ServerError(Exception):
    """Base of the server's errors."""


class ConfigurationError(ServerError):
    """A setting has a value that cannot work."""


class WeightsError(ServerError):
    """Weights are missing, unreadable or not what they claim to be."""


class PortError(ServerError):
    """The address cannot be listened on."""


class EngineDiedError(ServerError):
    """The engine stopped for good; what it ran is lost."""


class OverloadedError(ServerError):
    """No place is free and the queue is full; try again after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequestError(ServerError):
    """The request cannot be spoken; `param` names the field at fault, if one is, `code` how."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str = "invalid_value"
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class NothingToSpeakError(ValueError):
    """A text of which nothing can be said."""

    def __init__(self, text: str) -> None:
        start = text if len(text) <= 40 else f"{text[:40]}..."
        super().__init__(f"nothing in the text {start!r} can be spoken; send words")


class RequestError(ServerError):
    """A request that is not answered with speech, with its status and OpenAI's error fields."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        type: str = "invalid_request_error",
        retry_after_s: int | None = None,
        authenticate: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
        self.type = type
        self.retry_after_s = retry_after_s
        self.authenticate = authenticate  # How to say who one is.

    @classmethod
    def of_server(
        cls,
        message: str,
        *,
        code: str | None = None,
        status: int = 500,
        retry_after_s: int | None = None,
    ) -> RequestError:
        """A refusal that is no fault of the request."""
        return cls(
            message,
            code=code,
            status=status,
            type="server_error",
            retry_after_s=retry_after_s,
        )

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
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return headers | ({"WWW-Authenticate": self.authenticate} if self.authenticate else {})


def any_of(names: tuple[str, ...]) -> str:
    """`names` as a message lists what may be taken instead."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def shown(value: object) -> str:
    """The value as a message shows it: its repr, on one line, of a long one the beginning."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits.
        return "a number of thousands of digits"
    return cut(text)


def cut(text: str) -> str:
    """What another's message says, no longer than a value that is shown."""
    return text if len(text) <= _MOST_SHOWN + 2 else f"{text[:_MOST_SHOWN]}..."
