"""What a load test is asked for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Literal

from speech_assets.bench.address import Address, shown
from speech_assets.bench.errors import BenchError
from speech_assets.bench.headers import check_headers
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
# Beyond these a number is a slip of the finger, or this machine is not the one to ask.
LONGEST_S = {"--duration-s": 7 * 86_400.0, "--warmup-s": 86_400.0, "--timeout-s": 86_400.0}
MOST_STREAMS = 10_000  # And requests a second.
_MOST_PROCESSES = 256
_MOST_IN_FLIGHT = 1_000_000
_MOST_ARRIVALS = 5_000_000
_MOST_LAG_MS = 86_400_000.0
_CV = (0.01, 10.0)


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
        address = Address.parse(self.url)
        _check(self.api in APIS, f"--api {self.api!r} is not one of {', '.join(APIS)}")
        _check(self.mode in MODES, f"--mode {self.mode!r} is not one of {', '.join(MODES)}")
        _check(self.format in FORMATS, f"--format {self.format!r} is not of {', '.join(FORMATS)}")
        _check(
            self.api == "openai" or self.format in ("pcm", "wav"),
            f"--format {self.format}: over the WebSocket audio streams as pcm or wav",
        )
        _check(bool(self.levels), "there is no level; name at least one, as in --streams 1,2,4")
        for level in self.levels:
            _check(level > 0, f"level {level:g} is not above 0")
            _check(
                level <= MOST_STREAMS,
                f"level {level:g} is above {MOST_STREAMS:,}, the most of one client machine",
            )
            _check(
                self.mode == "open" or level == int(level),
                f"level {level:g} is no whole number of streams or listeners",
            )
        _check(self.duration_s > 0, f"--duration-s {self.duration_s:g} is not above 0")
        _check(self.warmup_s >= 0, f"--warmup-s {self.warmup_s:g} is below 0")
        _check(self.timeout_s > 0, f"--timeout-s {self.timeout_s:g} is not above 0")
        for name, longest_s in LONGEST_S.items():
            value_s = getattr(self, name.strip("-").replace("-", "_"))
            _check(value_s <= longest_s, f"{name} {value_s:g} is above {longest_s:,.0f}")
        _check(self.lag_limit_ms > 0, f"--lag-limit-ms {self.lag_limit_ms:g} is not above 0")
        _check(
            self.lag_limit_ms <= _MOST_LAG_MS,
            f"--lag-limit-ms {self.lag_limit_ms:g} is above {_MOST_LAG_MS:,.0f}",
        )
        _check(0 <= self.cancel_share <= 1, f"--cancel-share {self.cancel_share:g} is not in 0..1")
        _check(0 <= self.seed < 2**40, f"--seed {self.seed} is not in 0..2^40")
        _check(
            self.processes is None or 0 < self.processes <= _MOST_PROCESSES,
            f"--processes {self.processes} is not in 1..{_MOST_PROCESSES}",
        )
        _check(
            self.max_in_flight is None or 0 < self.max_in_flight <= _MOST_IN_FLIGHT,
            f"--max-in-flight {self.max_in_flight} is not in 1..{_MOST_IN_FLIGHT:,}",
        )
        _check(
            bool(self.texts) and all(text.strip() for text in self.texts),
            "there is no text, or a blank one; --texts wants a file with one text a line",
        )
        found = _ARRIVALS.fullmatch(self.arrivals)
        low, high = _CV
        _check(
            bool(found) and (not found or found[1] is None or low <= float(found[1]) <= high),
            f"--arrivals {self.arrivals[:40]!r} is not poisson, constant or gamma:CV "
            f"with a CV of {low:g} to {high:g}",
        )
        arrivals = max(self.levels) * (self.warmup_s + self.duration_s)
        _check(
            self.mode != "open" or arrivals <= _MOST_ARRIVALS,
            f"--rate {max(self.levels):g} makes {arrivals:,.0f} requests in a level; "
            f"at most {_MOST_ARRIVALS:,}: take a lower rate or a shorter time",
        )
        check_headers(self.headers, self.api, has_user=address.authorization is not None)

    @property
    def client_processes(self) -> int:
        """How many processes send requests."""
        if self.processes is not None:
            return self.processes
        streams = max(self.levels) * (_OPEN_REQUEST_S if self.mode == "open" else 1)
        return max(1, min(-(-int(streams) // STREAMS_PER_PROCESS), len(os.sched_getaffinity(0))))

    @property
    def address(self) -> Address:
        """The server's address in its parts."""
        return Address.parse(self.url)

    @property
    def shown_url(self) -> str:
        """The address without what may be secret in it."""
        return shown(self.url)

    @property
    def base_url(self) -> str:
        """Where the server's other routes are, without a slash at its end."""
        return self.address.base

    @property
    def speech_url(self) -> str:
        """Where speech is asked for."""
        return self.address.speech(self.api)

    @property
    def all_headers(self) -> dict[str, str]:
        """What goes with every request: the headers named, and the user of the address."""
        user = self.address.authorization
        return {**dict(self.headers), **({"Authorization": user} if user else {})}

    def in_flight_cap(self, level: float) -> int:
        """Requests at once above which an arrival is dropped."""
        return self.max_in_flight or max(1_024, int(16 * level))


def _check(is_fine: bool, message: str) -> None:
    if not is_fine:
        raise BenchError(message)
