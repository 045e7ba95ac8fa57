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

from resources.errors import ResourceError
from speech_assets.webhook import post

if TYPE_CHECKING:
    from logging import Logger

    from resources.store import Store

URL_VARIABLE = "SPEECH_ALERT_URL"
DEADLINE_S = 10.0
"""For all of sending a note: a tick of a sensor has a minute for all that it tells of."""


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

    What cannot be written or sent is said in the log; what is no character is told as "?".
    """
    note = _of_characters(note)
    log.error(note.as_markdown())
    try:
        store.write_bytes(note.key, note.as_markdown().encode())
    except (ResourceError, OSError, ValueError) as error:
        log.warning(f"the note could not be kept: {error}")
    url = (os.environ if environment is None else environment).get(URL_VARIABLE, "")
    if url:
        _send(url, note, log)


def _send(url: str, note: Note, log: Logger) -> None:
    answer = post(url, note.as_json(), DEADLINE_S)
    if isinstance(answer, str):
        log.warning(
            f"{URL_VARIABLE}: the note was not sent ({answer}); give an address as "
            "https://host/path that this machine reaches"
        )
    elif not 200 <= answer < 300:
        # Who knows the whole address of such a hook can write there: only its host is shown.
        log.warning(f"{URL_VARIABLE} ({_host(url)}) did not take the note: it answered {answer}")


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _of_characters(note: Note) -> Note:
    """The note without lone surrogates, which a file's name or a process' output may bring: no
    file, log or JSON takes them."""
    return Note(
        kind=_encodable(note.kind),
        name=_encodable(note.name),
        title=_encodable(note.title),
        why=_encodable(note.why),
        next_steps=tuple(map(_encodable, note.next_steps)),
        facts={_encodable(name): _encodable(value) for name, value in note.facts.items()},
    )


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
