"""One server for the tests that leave it as it was: starting one takes half a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_voice import write_small_voice
from speech_servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from resources.speech_server import SpeechServer


@pytest.fixture(scope="session")
def endless_voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice with random weights that speaks until a guard or a limit ends it."""
    return write_small_voice(tmp_path_factory.mktemp("voice"), live_codes=1_500)


@pytest.fixture(scope="session")
def server(endless_voice: Path) -> Iterator[SpeechServer]:
    """A real server; short limits where a test would have to wait for them."""
    with running(
        endless_voice,
        *("--limit", "config_s=1", "--limit", "body_s=1", "--limit", "waiting_utterances=4"),
    ) as server:
        yield server
