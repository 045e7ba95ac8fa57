"""What a load test is asked for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from speech_assets.bench.errors import BenchError
from speech_assets.sentences import SENTENCES

Api = Literal["openai", "ws"]
Mode = Literal["closed", "open", "listening"]
Format = Literal["pcm", "wav", "mp3", "opus", "flac", "aac", "mulaw"]

APIS: tuple[Api, ...] = ("openai", "ws")
MODES: tuple[Mode, ...] = ("closed", "open", "listening")
FORMATS: tuple[Format, ...] = ("pcm", "wav", "mp3", "opus", "flac", "aac", "mulaw")
STREAMS_PER_PROCESS = 64
# An open load has as many requests in flight as the server needs: this is what one of 5 s makes.
_OPEN_REQUEST_S = 5.0
_ARRIVALS = re.compile(r"poisson|constant|gamma:(\d+(\.\d*)?|\.\d+)")
_SPEECH_PATH = "/v1/audio/speech"
_SCHEMES = {"http": ("http", "ws"), "https": ("https", "wss"), "ws": ("http", "ws")}
_SCHEMES["wss"] = _SCHEMES["https"]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """One sweep: the same load at several levels against one server.

    `levels` are streams (`closed`), requests a second (`open`) or listeners (`listening`).
    `processes` None means enough for 64 streams each, at most the cores at hand; `max_in_flight`
    None a cap far above need (1,024, or 16 times the level).

    Raises:
        BenchError: a value cannot work.
    """

    url: str
    api: Api = "openai"
    mode: Mode = "closed"
    levels: tuple[float, ...] = (1.0,)
    duration_s: float = 60.0
    warmup_s: float = 10.0
    texts: tuple[str, ...] = field(default=SENTENCES)
    seed: int = 1
    processes: int | None = None
    format: Format = "pcm"
    voice: str | None = None
    model: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    arrivals: str = "poisson"
    fresh_connections: bool = False
    cancel_share: float = 0.0
    timeout_s: float = 120.0
    lag_limit_ms: float = 5.0
    max_in_flight: int | None = None

    def __post_init__(self) -> None:
        _check(
            _is_address(self.url),
            f"--url {self.url!r} is no address; write it as http://host:port",
        )
        _check(self.api in APIS, f"--api {self.api!r} is not one of {', '.join(APIS)}")
        _check(self.mode in MODES, f"--mode {self.mode!r} is not one of {', '.join(MODES)}")
        _check(self.format in FORMATS, f"--format {self.format!r} is not of {', '.join(FORMATS)}")
        _check(
            self.api == "openai" or self.format in ("pcm", "wav"),
            f"--format {self.format}: over the WebSocket audio streams as pcm or wav",
        )
        _check(bool(self.levels), "there is no level; name at least one, as in --streams 1,2,4")
        for level in self.levels:
            _check(0 < level < float("inf"), f"level {level:g} is not above 0")
            _check(
                self.mode == "open" or level == int(level),
                f"level {level:g} is no whole number of streams or listeners",
            )
        _check(self.duration_s > 0, f"--duration-s {self.duration_s:g} is not above 0")
        _check(self.warmup_s >= 0, f"--warmup-s {self.warmup_s:g} is below 0")
        _check(self.timeout_s > 0, f"--timeout-s {self.timeout_s:g} is not above 0")
        _check(self.lag_limit_ms > 0, f"--lag-limit-ms {self.lag_limit_ms:g} is not above 0")
        _check(0 <= self.cancel_share <= 1, f"--cancel-share {self.cancel_share:g} is not in 0..1")
        _check(0 <= self.seed < 2**40, f"--seed {self.seed} is not in 0..2^40")
        _check(
            self.processes is None or self.processes > 0,
            f"--processes {self.processes} is not above 0",
        )
        _check(
            self.max_in_flight is None or self.max_in_flight > 0,
            f"--max-in-flight {self.max_in_flight} is not above 0",
        )
        _check(
            bool(self.texts) and all(text.strip() for text in self.texts),
            "there is no text, or a blank one; --texts wants a file with one text a line",
        )
        found = _ARRIVALS.fullmatch(self.arrivals)
        _check(
            bool(found) and (not found or found[1] is None or float(found[1]) > 0),
            f"--arrivals {self.arrivals!r} is not poisson, constant or gamma:CV with a CV above 0",
        )

    @property
    def client_processes(self) -> int:
        """How many processes send requests."""
        if self.processes is not None:
            return self.processes
        streams = max(self.levels) * (_OPEN_REQUEST_S if self.mode == "open" else 1)
        return max(1, min(-(-int(streams) // STREAMS_PER_PROCESS), len(os.sched_getaffinity(0))))

    @property
    def base_url(self) -> str:
        """Where the server's other routes are, without a slash at its end."""
        return self._address(0, "")

    @property
    def speech_url(self) -> str:
        """Where speech is asked for."""
        if self.api == "ws":
            return self._address(1, f"{_SPEECH_PATH}/stream")
        return self._address(0, _SPEECH_PATH)

    def in_flight_cap(self, level: float) -> int:
        """Requests at once above which an arrival is dropped."""
        return self.max_in_flight or max(1_024, int(16 * level))

    def _address(self, scheme: int, path: str) -> str:
        parts = urlsplit(self.url)
        root = parts.path.rstrip("/")
        # People paste what their own client uses: the root, the API's root, or the whole route.
        for end in (f"{_SPEECH_PATH}/stream", _SPEECH_PATH, "/v1"):
            root = root.removesuffix(end)
        return urlunsplit((_SCHEMES[parts.scheme][scheme], parts.netloc, root + path, "", ""))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is no number, a bracket too many.
        return False


def _check(is_fine: bool, message: str) -> None:
    if not is_fine:
        raise BenchError(message)
