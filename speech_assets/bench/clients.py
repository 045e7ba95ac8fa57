"""The client processes of a run: started, told what to do, heard, and ended whatever happens."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from speech_assets.bench.errors import ClientDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from speech_assets.bench.part import Part
    from speech_assets.bench.target import Target

_READY_WITHIN_S = 120.0  # On a busy machine; alone it is about a second.
_END_WITHIN_S = 5.0
# A process under load tells something five times a second; it decodes in silence afterwards.
_SILENT_S = 60.0
_DECODED_WITHIN_S = 1_800.0
_LOOK_EVERY_S = 0.1
_MOST_OF_A_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class PartEnd:
    """What one process has to say when its part has ended."""

    rows: pa.Table
    lag_ms_p99: float | None
    lag_ms_max: float | None
    cpu_share: float
    cut: int  # Requests in flight that were cancelled in the end, at `cut_s` (monotonic).
    cut_s: float
    unfinished: int  # Measured ones among them: the run was interrupted.
    faults: Sequence[str] = ()  # Why the client, not the server, was the limit.


class Clients:
    """Client processes that are ready."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes
        self._answers = queue.SimpleQueue[tuple[int, dict[str, Any] | None, bytes]]()
        # Of the part that runs.
        self._start_s = 0.0
        self._is_stopping = False
        self._facts: dict[int, dict[str, Any]] = {}
        self._ends: dict[int, PartEnd] = {}
        self._complete: set[int] = set()
        self._readers = [
            threading.Thread(
                target=_read_answers,
                args=(index, process.stdout, self._answers),
                name=f"bench-client-{index}",
                daemon=True,
            )
            for index, process in enumerate(processes)
        ]
        for reader in self._readers:
            reader.start()

    @classmethod
    @contextlib.contextmanager
    def running(cls, target: Target, count: int) -> Generator[Clients]:
        """`count` processes for `target`, ended when the context ends.

        Raises:
            ClientDiedError: one did not become ready.
        """
        started: list[subprocess.Popen[bytes]] = []
        clients: Clients | None = None
        try:
            for index in range(count):
                try:
                    process = subprocess.Popen(
                        [sys.executable, "-m", "speech_assets.bench.client"],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        # Ctrl-C is for the coordinator, who says when it is time to end.
                        start_new_session=True,
                    )
                    started.append(process)
                    _tell(process, asdict(target))
                except OSError as error:
                    raise ClientDiedError(
                        f"client process {index} of {count} could not be started: {error}"
                    ) from error
            clients = cls(started)
            clients._wait_until_ready()
            yield clients
        finally:
            _end(started)
            # They read to the end of what is closed now.
            for reader in clients._readers if clients else ():
                reader.join()
            for process in started:
                assert process.stdout is not None
                process.stdout.close()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._processes)

    def run(
        self,
        parts: Sequence[Part],
        listen: Callable[[int, dict[str, Any]], None],
        finished: Callable[[], None],
    ) -> list[PartEnd]:
        """Run one part in each process.

        `listen` gets (process, progress), an empty one if there is none for a while, so that
        whoever waits can look at the time. `finished` is called when all measured requests have
        ended and those still in flight have just been cancelled.

        Raises:
            ClientDiedError: a process ended.
        """
        self._start_s = parts[0].start_s
        self._is_stopping = False
        self._facts, self._ends, self._complete = {}, {}, set()
        for index, (process, part) in enumerate(zip(self._processes, parts, strict=True)):
            try:
                _tell(process, {"order": "part", "part": asdict(part)})
            except OSError:
                raise self._death(index) from None
        return self._hear(listen, finished)

    def stop(self) -> None:
        """End the part that runs at once: whatever is in flight is cancelled."""
        self._is_stopping = True
        self._at_once("stop")

    def rest(self) -> list[PartEnd]:
        """What is left to hear of a part that was stopped while `run` waited for it."""
        return self._hear(lambda *_: None, lambda: None)

    def _hear(
        self, listen: Callable[[int, dict[str, Any]], None], finished: Callable[[], None]
    ) -> list[PartEnd]:
        looked_s = time.monotonic()
        silent_s = dict.fromkeys(range(self.count), min(0.0, looked_s - self._start_s))
        while len(self._ends) < self.count:
            # Also while others tell: a lively process must not hide one that stands still. Time in
            # which this process stood still itself is nobody's silence.
            passed_s, looked_s = time.monotonic() - looked_s, time.monotonic()
            self._look_for_silence(silent_s, min(passed_s, _MOST_OF_A_LOOK_S))
            try:
                index, answer, data = self._answers.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                listen(0, {})
                continue
            silent_s[index] = 0.0
            if answer is None:
                raise self._death(index)
            event = answer.pop("event")
            if event == "progress":
                listen(index, answer)
            elif event == "complete":
                self._complete.add(index)
                if len(self._complete) == self.count and not self._is_stopping:
                    self._at_once("finish")
                    finished()
            elif event == "fault":
                raise _fault(index, answer)
            elif event == "ended":
                self._facts[index] = answer
            elif event == "rows":
                table = pa.ipc.open_stream(data).read_all()
                self._ends[index] = PartEnd(table, **self._facts[index])
        return [self._ends[index] for index in range(self.count)]

    def _look_for_silence(self, silent_s: dict[int, float], passed_s: float) -> None:
        for index in set(silent_s) - set(self._ends):
            silent_s[index] += passed_s
            limit_s = _DECODED_WITHIN_S if index in self._facts else _SILENT_S
            if silent_s[index] > limit_s:
                raise ClientDiedError(
                    f"client process {index} has said nothing for {limit_s:g} s; is it stopped?"
                )

    def _at_once(self, order: str) -> None:
        for process in self._processes:
            with contextlib.suppress(OSError):
                _tell(process, {"order": order, "start_s": self._start_s})

    def _wait_until_ready(self) -> None:
        ready: set[int] = set()
        deadline_s = time.monotonic() + _READY_WITHIN_S
        while len(ready) < self.count:
            try:
                index, answer, _ = self._answers.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                if time.monotonic() > deadline_s:
                    raise ClientDiedError(
                        f"client processes were not ready within {_READY_WITHIN_S:g} s"
                    ) from None
                continue
            if answer is None:
                raise self._death(index)
            if answer["event"] == "fault":
                raise _fault(index, answer)
            ready.add(index)

    def _death(self, index: int) -> ClientDiedError:
        # Its pipe is closed, so it has ended or is about to.
        code = self._processes[index].wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return ClientDiedError(f"client process {index} {how}; what it measured is lost")


def _fault(index: int, answer: dict[str, Any]) -> ClientDiedError:
    return ClientDiedError(f"client process {index} cannot go on: {answer['words']}")


def _tell(process: subprocess.Popen[bytes], order: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()


def _read_answers(
    index: int,
    output: IO[bytes] | None,
    answers: queue.SimpleQueue[tuple[int, dict[str, Any] | None, bytes]],
) -> None:
    """Hand on what a process answers; None when there will be no more."""
    assert output is not None
    with contextlib.suppress(OSError, ValueError):  # A process killed in the middle of a line.
        while line := output.readline():
            answer = json.loads(line)
            data = output.read(answer["bytes"]) if answer["event"] == "rows" else b""
            if answer["event"] == "rows" and len(data) < answer["bytes"]:
                break
            answers.put((index, answer, data))
    answers.put((index, None, b""))


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close what they listen to, and kill those that do not go."""
    try:
        for process in processes:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
        deadline_s = time.monotonic() + _END_WITHIN_S
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline_s - time.monotonic()))
    finally:
        # Also when a second Ctrl-C cuts the wait short.
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
