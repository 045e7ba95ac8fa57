"""One server for the tests that leave it as it was: starting one takes half a minute."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from small_voice import write_small_voice
from speech_servers import logged, running

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from resources.speech_server import SpeechServer


@pytest.fixture(scope="session")
def endless_voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice with random weights that speaks until a guard or a limit ends it."""
    return write_small_voice(tmp_path_factory.mktemp("voice"), live_codes=1_500)


@pytest.fixture(scope="session")
def one_process(endless_voice: Path) -> Iterator[SpeechServer]:
    """A real server; short limits where a test would have to wait for them."""
    with running(
        endless_voice,
        *("--limit", "config_s=1", "--limit", "body_s=1", "--limit", "waiting_utterances=4"),
    ) as server:
        yield server


@dataclass(frozen=True)
class Guarded:
    """A server that wants a token, with its log; so many processes answer its clients."""

    server: SpeechServer
    log: Path
    answering: int = 1
    token: str = "0123456789abcdef.of-the-file"
    other_token: str = "fedcba9876543210_of_the_variable"
    allowed_origin: str = "https://app.example"

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}


@contextlib.contextmanager
def guarding(voice: Path, folder: Path, *, api_processes: int = 0) -> Generator[Guarded]:
    """A server as in production: tokens, pages of one other site, JSON lines, small limits."""
    (folder / "tokens").write_text(f"# Of the tests.\n\n{Guarded.token}\n")
    with logged(
        voice,
        folder / "log",
        *("--api-processes", str(api_processes)),
        *("--token-file", str(folder / "tokens"), "--allow-origin", Guarded.allowed_origin),
        *("--log-format", "json", "--max-streams", "2", "--max-queue", "2"),
        *("--limit", "headers_s=1", "--limit", "header_bytes=8192", "--limit", "body_s=1"),
        *("--limit", "connections=40", "--limit", "sockets=3"),
        environment={"SPEECH_SERVER_TOKEN": Guarded.other_token},
    ) as server:
        yield Guarded(server, folder / "log", api_processes or 1)


@pytest.fixture(scope="session")
def guarded_one_process(
    endless_voice: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Such a server of one process."""
    with guarding(endless_voice, tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


@pytest.fixture(scope="session")
def guarded_api_processes(
    endless_voice: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """The same with two API processes apart from the engine."""
    folder = tmp_path_factory.mktemp("guarded")
    with guarding(endless_voice, folder, api_processes=2) as guarded:
        yield guarded


@pytest.fixture(scope="session")
def guarded(request: pytest.FixtureRequest) -> Guarded:
    """The one of one process, unless a test is of both forms."""
    return request.getfixturevalue(getattr(request, "param", "guarded_one_process"))


@pytest.fixture(scope="session")
def api_processes(endless_voice: Path) -> Iterator[SpeechServer]:
    """The same with two API processes apart from the engine, and few places."""
    with running(
        endless_voice,
        *("--limit", "config_s=1", "--limit", "body_s=1", "--limit", "waiting_utterances=4"),
        *("--api-processes", "2", "--max-streams", "4", "--max-queue", "2"),
    ) as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> SpeechServer:
    """The server of one process, unless a test is of both forms (`speech_servers.both_forms`)."""
    return request.getfixturevalue(getattr(request, "param", "one_process"))
