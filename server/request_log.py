"""The log: one line for each speech request, as text or JSON, with nothing that anybody said.

A line has no text, no token, no address and no message that a client's words could be part of.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from server.metrics import Outcome, Transport

LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

_LOG = logging.getLogger("server.requests")
_PLAIN = re.compile(r"[\w.:/+-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A speech request that has ended: one POST, or one sentence of a socket.

    What a socket sends and is refused, or its opening, is one that was refused, too; what of an
    utterance is dropped before it is begun, by a cancel or an end, is one that was cancelled.

    Attributes:
        id: the x-request-id; of a socket's sentence, with the numbers of utterance and sentence; of
            what was dropped, with the utterance's.
        status: what HTTP answers, or would; 499 is a client that left before the first audio.
        outcome: the finish reason, or why there was no speech or not all of it.
        code: of the error, if it was refused.
        characters: of the text.
        total_ms: until the last sample was made; of a request that had none, until its end.
        open_ms: until the client had taken all of it.
        samples: handed to the client; `bytes` with headers and encoding.
    """

    id: str
    transport: Transport
    status: int
    outcome: Outcome
    code: str | None = None
    format: str | None = None
    voice: str | None = None
    characters: int | None = None
    ttfa_ms: float | None = None
    ttfs_ms: float | None = None
    total_ms: float | None = None
    open_ms: float | None = None
    rtf: float | None = None
    samples: int = 0
    bytes: int = 0
    error: str | None = None  # The engine's words, or the name of another failure.

    @property
    def route(self) -> str:
        """The route that it came by."""
        return "/v1/audio/speech" + ("/stream" if self.transport == "websocket" else "")

    def write(self) -> None:
        """Log it; fields without a value are left out."""
        fields = {"id": self.id, "route": self.route, **asdict(self)}
        known = {name: value for name, value in fields.items() if value is not None}
        _LOG.info("%s", _Logfmt(known), extra={"request": known})


def configure_log(form: LogFormat) -> None:
    """Log to standard error from now on: lines for people, or one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class _Logfmt:
    """Fields as `name=value`, made only when a line is written."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return " ".join(f"{name}={_quoted(value)}" for name, value in self._fields.items())


class _JsonLines(logging.Formatter):
    """A record as one JSON object: time in UTC, level, logger, and fields or message."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        request = getattr(record, "request", None)
        line |= request if request is not None else {"message": record.getMessage()}
        if record.exc_info:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
