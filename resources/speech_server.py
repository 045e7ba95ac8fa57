"""A speech server for as long as it is needed: started, ready, and ended whatever happens.

The server is a process of its own (`python -m server`). It gets a pipe as standard input and ends
when that closes, so it does not outlive even a SIGKILL of its starter. It leads a process group, so
that its children end with it. What it logs goes to the starter's standard error; the last lines are
kept for the failure.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from resources.errors import WorkError
from resources.work import DRAIN_S, TAIL_LINES, end_group, pump, stop

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

READY_WITHIN_S = 600.0  # A large model's weights, compilation and captured graphs.
# What no second try mends: configuration and weights.
_FINAL_CODES = (2, 3)
_LOOK_EVERY_S = 0.2
_CONFIG_WITHIN_S = 60.0
_INFO = " INFO "


@dataclass(frozen=True, slots=True)
class SpeechServer:
    """A server that is ready at `url` (`http://127.0.0.1:port`)."""

    url: str
    preset: str
    config_sha256: str
    process: subprocess.Popen[bytes]
    tail: collections.deque[str]  # The last lines that it logged.

    def config(self) -> dict[str, Any]:
        """What `/config` says: settings, engine, weights, and the configuration's hash."""
        answer = httpx.get(f"{self.url}/config", timeout=_CONFIG_WITHIN_S, trust_env=False)
        value: dict[str, Any] = answer.raise_for_status().json()
        return value

    @classmethod
    @contextlib.contextmanager
    def running(
        cls,
        preset: str,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        ready_within_s: float = READY_WITHIN_S,
        info_is_shown: bool = True,
    ) -> Generator[SpeechServer]:
        """A server of `preset` on a free port, ended when the context ends.

        `arguments` are further options of `python -m server`. Without `info_is_shown`, only
        warnings and errors of its log are handed on: no line for each request, of which a load
        makes hundreds, and no word to whoever would open its page.

        Raises:
            WorkError: it did not become ready, or it died while it was used; the message ends with
                what it logged last. Retryable unless configuration or weights are at fault.
        """
        process = subprocess.Popen(
            [
                *(sys.executable, "-u", "-m", "server", "--preset", preset, "--port", "0"),
                *(*arguments, "--exit-on-stdin-eof"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Its client is whoever starts it: no token that a user set for another server.
            env={**os.environ, "SPEECH_SERVER_TOKEN": "", **(environment or {})},
            start_new_session=True,
        )
        tail = collections.deque[str](maxlen=TAIL_LINES)
        log = threading.Thread(
            target=pump,
            args=(process.stderr, tail, "" if info_is_shown else _INFO),
            name="server-log",
            daemon=True,
        )
        try:
            log.start()  # Within: a full machine has no more threads.
            try:
                server = _ready(process, tail, log, preset, ready_within_s)
                yield server
            except Exception as error:
                if process.poll() is None or isinstance(error, WorkError):
                    raise
                raise _death(process, tail, log, preset) from error
            if process.poll() is not None:
                raise _death(process, tail, log, preset)
        finally:
            try:
                stop(process)
            finally:
                # Also when a second Ctrl-C cuts the wait for a clean end short.
                end_group(process)
            if log.ident is not None:
                log.join(timeout=DRAIN_S)
            for stream in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()


def _ready(
    process: subprocess.Popen[bytes],
    tail: collections.deque[str],
    log: threading.Thread,
    preset: str,
    ready_within_s: float,
) -> SpeechServer:
    """Wait for the ready line while watching the process."""
    assert process.stdout is not None
    deadline_s = time.monotonic() + ready_within_s
    line = b""
    while not line.endswith(b"\n"):
        if time.monotonic() > deadline_s:
            raise WorkError(
                f"the server of preset {preset!r} was not ready within {ready_within_s:g} s; it "
                "logged last:\n" + "\n".join(tail),
                retryable=True,
            )
        if not select.select([process.stdout], [], [], _LOOK_EVERY_S)[0]:
            continue
        data = os.read(process.stdout.fileno(), 65_536)
        if not data:
            raise _death(process, tail, log, preset)
        line += data
    event = json.loads(line)
    return SpeechServer(event["url"], event["preset"], event["config_sha256"], process, tail)


def _death(
    process: subprocess.Popen[bytes],
    tail: collections.deque[str],
    log: threading.Thread,
    preset: str,
) -> WorkError:
    code = process.wait()
    # What it said last may still be in the pipe, which a child of it can hold open.
    end_group(process)
    log.join(timeout=DRAIN_S)
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return WorkError(
        f"the server of preset {preset!r} {how}; it logged last:\n" + "\n".join(tail),
        retryable=code not in _FINAL_CODES,
    )
