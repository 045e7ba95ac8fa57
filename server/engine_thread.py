"""The thread that makes speech: it takes commands, runs rounds, and hands over what they made.

Chunks and ends go to the event loop together, once a round, so that it is woken once however many
streams run.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.errors import EngineDiedError
from server.rounds import Rounds, Submission
from server.speech import FinishReason, UtteranceReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.codec_calls import Decoder
    from server.engine import Engine
    from server.errors import ServerError
    from server.frames import TokenLayout
    from server.metrics import Metrics
    from server.planner import Planner
    from server.rounds import Event

_WAIT_S = 0.005  # Between looks at what time alone makes ready.

_LOG = logging.getLogger("server.engine")


@dataclass(frozen=True, slots=True)
class _Cancel:
    name: str


@dataclass(frozen=True, slots=True)
class _CodecHeard:
    """A codec that runs elsewhere has done a call, or has failed."""

    error: ServerError | None


_Command = Submission | _Cancel | _CodecHeard | None  # None: end.


class EngineThread:
    """Makes the speech of what is submitted. `submit`, `cancel` and `close` are for any thread."""

    def __init__(
        self,
        open_parts: Callable[[], tuple[Engine, Decoder]],
        planner: Planner,
        layout: TokenLayout,
        metrics: Metrics,
        ended: Callable[[str], None],
    ) -> None:
        """Open the engine and the codec on the thread, and start it.

        Args:
            open_parts: gives them, warm; called on the thread, whose they are from then on.
            planner: of the decodes.
            layout: of the engine's tokens.
            metrics: what is counted and timed.
            ended: called on the event loop with the name of each utterance that has ended.

        Raises:
            ServerError: they do not open.
        """
        self.failure: str | None = None
        self._open_parts, self._planner, self._layout = open_parts, planner, layout
        self._metrics, self._ended = metrics, ended
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._waiting = False  # The last round had nothing to do but wait.
        opened: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name="engine", daemon=True
        )
        self._thread.start()
        if (error := opened.get()) is not None:
            raise error

    @property
    def engine(self) -> Engine:
        """The engine; its facts may be read on any thread."""
        return self._engine

    def submit(self, submission: Submission, loop: asyncio.AbstractEventLoop) -> None:
        """Make speech of a request; its utterance hears of it on `loop`."""
        self._loop = loop
        self._commands.put(submission)

    def cancel(self, name: str) -> None:
        """End an utterance; nothing happens if it has ended."""
        self._commands.put(_Cancel(name))

    def close(self) -> None:
        """End everything, and wait for it. What is submitted afterwards is never answered."""
        self._closing = True
        self._commands.put(None)
        self._thread.join()

    def _run(self, opened: queue.SimpleQueue[BaseException | None]) -> None:
        try:
            self._engine, decoder = self._open_parts()
        except BaseException as error:  # Whatever it is belongs to whoever opens.
            opened.put(error)
            return
        self._rounds = Rounds(self._engine, decoder, self._planner, self._layout, self._metrics)
        opened.put(None)
        decoder.watch(lambda error: self._commands.put(_CodecHeard(error)))
        try:
            while not self._closing:
                self._obey()
                self._waiting = not self._rounds.turn()
                self._hand_over()
        except EngineDiedError as error:
            self._fail(str(error))
        except Exception as error:
            _LOG.exception("the engine's thread stopped")
            self._fail(f"{type(error).__name__}: {error}")
        self._rounds.end_all("cancelled")
        self._refuse_waiting("cancelled", "the server is ending")
        self._hand_over()
        try:
            self._engine.close()
        finally:
            decoder.close()

    def _obey(self) -> None:
        """Carry out what has been asked; wait for it when there is nothing else to do."""
        wait_s = None if self._rounds.idle else _WAIT_S if self._waiting else 0.0
        while True:
            try:
                command = self._commands.get(block=wait_s != 0.0, timeout=wait_s)
            except queue.Empty:
                return
            wait_s = 0.0
            if command is None:
                self._closing = True
            elif isinstance(command, Submission):
                self._rounds.begin(command)
            elif isinstance(command, _CodecHeard):
                # Heard, it ends a wait for what is done; it is found where its turn comes.
                if command.error is not None:
                    raise command.error
            else:
                self._rounds.cancel(command.name)

    def _fail(self, failure: str) -> None:
        """End every utterance with the failure, now and until the end."""
        _LOG.error("the engine has failed: %s", failure)
        self._rounds.end_all("error", failure)
        self.failure = failure
        self._hand_over()
        while not self._closing and (command := self._commands.get()) is not None:
            if isinstance(command, Submission):
                self._refuse(command, "error", failure)
                self._hand_over()

    def _refuse_waiting(self, reason: FinishReason, error: str) -> None:
        """End what was submitted and is not begun: its readers wait for an end."""
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, Submission):
                self._refuse(command, reason, error)

    def _refuse(self, submission: Submission, reason: FinishReason, error: str) -> None:
        total_ms = (time.monotonic() - submission.asked_s) * 1e3
        report = UtteranceReport(
            reason, input_tokens=len(submission.prompt_ids), total_ms=total_ms, error=error
        )
        self._rounds.events.append((submission.utterance, report))

    def _hand_over(self) -> None:
        """Give the event loop what has been made since the last time."""
        events, self._rounds.events = self._rounds.events, []
        if not events or self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._pass_on, events)
        except RuntimeError:
            _LOG.info("%d events came after the event loop had ended", len(events))

    def _pass_on(self, events: list[Event]) -> None:
        for utterance, event in events:
            if isinstance(event, bytes):
                utterance.put(event)
            else:
                utterance.end(event)
                self._ended(utterance.request.id)
