"""Notes for people on what went wrong in a run that nobody watched: kept in the store, and sent.

A note says what, why and what to do next. Where SPEECH_ALERT_URL is set it is also POSTed there as
JSON. Neither may raise: what is told of has failed already.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from resources.errors import ResourceError

if TYPE_CHECKING:
    from logging import Logger

    from resources.store import Store

URL_VARIABLE = "SPEECH_ALERT_URL"
TIMEOUT_S = 10.0
"""A tick of a sensor has a minute for all that it tells of."""


@dataclass(frozen=True, slots=True)
class Note:
    """What went wrong in a run.

    Attributes:
        kind: folder of the note: "failures" or "regressions".
        name: of its file, of letters, digits and hyphens.
        title: one line.
        why: the message, which names value, place and remedy.
        next_steps: what to do, a line each.
        facts: run, job, partition and the like.
    """

    kind: str
    name: str
    title: str
    why: str
    next_steps: tuple[str, ...]
    facts: Mapping[str, str]

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"notes/{self.kind}/{self.name}.md"

    def as_markdown(self) -> str:
        """The note as its file has it."""
        lines = [f"# {self.title}", ""]
        lines += [f"- {name}: {value}" for name, value in self.facts.items() if value]
        lines += ["", "## Why", "", self.why.strip(), "", "## What to do next", ""]
        lines += [f"{n}. {step}" for n, step in enumerate(self.next_steps, 1)]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """The note as it is sent; `text` is all of it, for chats that show that field."""
        return {**asdict(self), "facts": dict(self.facts), "text": self.as_markdown()}


def tell(
    note: Note, store: Store, log: Logger, environment: Mapping[str, str] | None = None
) -> None:
    """Write the note to the store and the log, and send it where SPEECH_ALERT_URL says.

    What cannot be written or sent is said in the log.
    """
    log.error(note.as_markdown())
    try:
        store.write_bytes(note.key, note.as_markdown().encode())
    except (ResourceError, OSError) as error:
        log.warning(f"the note could not be kept: {error}")
    url = (os.environ if environment is None else environment).get(URL_VARIABLE, "")
    if url:
        _send(url, note, log)


def _send(url: str, note: Note, log: Logger) -> None:
    # Who knows the whole address of such a hook can write there: only its host is shown.
    try:
        where = f"{URL_VARIABLE} ({urlsplit(url).hostname})"
        response = httpx.post(url, json=note.as_json(), timeout=TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        what = type(error).__name__
        log.warning(
            f"{URL_VARIABLE}: the note was not sent ({what}); give an address as "
            "https://host/path that this machine reaches"
        )
        return
    if not response.is_success:
        log.warning(f"{where} did not take the note: it answered {response.status_code}")
