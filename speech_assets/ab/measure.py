"""Both arms served and asked: raw rows and WAVs of each, kept as they come."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import httpx

from resources.errors import WorkError
from resources.scratch import scratch_folder
from resources.speech_server import SpeechServer
from server.presets import VARIABLE
from speech_assets.ab.arm import LETTERS, Arm, Letter, shown_settings
from speech_assets.ab.asking import TIMEOUT_S, Asker
from speech_assets.ab.errors import AskError
from speech_assets.ab.memory import Memory, memory_of
from speech_assets.ab.plan import Ask, Order, blocks, turns
from speech_assets.ab.raw import RawArm, RawRow

if TYPE_CHECKING:
    from resources.store import Store
    from speech_assets.work.worker import Reporter

OrderChoice = Literal["auto", "turns", "blocks"]
ORDERS: tuple[OrderChoice, ...] = get_args(OrderChoice)
_ROOM = 1.25  # Memory that must be free for a second server: so many times the first's.
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB", re.M)


@dataclass(slots=True)
class _Measured:
    """What is known of an arm so far."""

    arm: Arm
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    memory: Memory | None = None
    warmup_clips: int = 0
    rows: list[RawRow] = field(default_factory=list[RawRow])


@dataclass(slots=True)
class Measurement:
    """Asks both arms for the same clips.

    Attributes:
        folder: of the store, where WAVs go: `<folder>/<arm>/<sentence>-<seed>.wav`.
        warmup: clips that each server speaks first, which are not kept.
    """

    store: Store
    folder: str
    arms: Mapping[Letter, Arm]
    asked: Sequence[Ask]
    warmup: int
    order: OrderChoice
    reporter: Reporter
    _found: dict[Letter, _Measured] = field(init=False)
    _position: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._found = {letter: _Measured(self.arms[letter]) for letter in LETTERS}

    def run(self) -> tuple[RawArm, RawArm, Order]:
        """Raw rows of both arms, and in which order they were asked.

        Raises:
            AskError: an arm refused a clip or lost its connection, or somebody else asked it.
            WorkError: a server did not start, or died.
            StoreError: a WAV cannot be kept.
        """
        planned = blocks(self.asked)
        with self._serving("a") as server:
            order = self._chosen(server)
            if order == "turns":
                with self._serving("b") as other:
                    self._take_turns({"a": server, "b": other})
            else:
                self._ask_block("a", server, planned[0][1])
        if order == "blocks":
            for letter, block in planned[1:]:
                with self._serving(letter) as server:
                    self._ask_block(letter, server, block)
        return self._raw("a"), self._raw("b"), order

    def _take_turns(self, servers: Mapping[Letter, SpeechServer]) -> None:
        with contextlib.ExitStack() as stack:
            askers = {k: stack.enter_context(_asker(server)) for k, server in servers.items()}
            for letter in LETTERS:
                self._warm_up(letter, askers[letter])
            for letter, ask in turns(self.asked):
                self._ask(letter, askers[letter], ask)
            for letter in LETTERS:
                self._end(letter, askers[letter])

    def _ask_block(self, letter: Letter, server: SpeechServer, block: Sequence[Ask]) -> None:
        with _asker(server) as asker:
            self._warm_up(letter, asker)
            for ask in block:
                self._ask(letter, asker, ask)
            self._end(letter, asker)

    def _warm_up(self, letter: Letter, asker: Asker) -> None:
        asker.check_alone(f"arm {letter.upper()} ({self.arms[letter].label}), before its clips")
        for ask in self.asked[: self.warmup]:
            asker.speak(ask, f"{self._where(letter, ask)}, to warm up")
            self._found[letter].warmup_clips += 1

    def _end(self, letter: Letter, asker: Asker) -> None:
        asker.check_alone(f"arm {letter.upper()} ({self.arms[letter].label}), after its clips")
        self._weigh(letter, asker.server)

    def _ask(self, letter: Letter, asker: Asker, ask: Ask) -> None:
        answer = asker.speak(ask, self._where(letter, ask))
        key = f"{self.folder}/{letter}/{ask.sentence.id:03d}-{ask.seed}.wav" if answer.audio else ""
        if key:
            self.store.write_bytes(key, answer.audio)
        self._found[letter].rows.append(
            RawRow(
                sentence_id=ask.sentence.id,
                kind=ask.sentence.kind,
                seed=ask.seed,
                text=ask.sentence.text,
                position=self._position,
                file=key,
                file_sha256=hashlib.sha256(answer.audio).hexdigest() if key else "",
                samples=answer.samples,
                frames=answer.frames,
                finish_reason=answer.finish_reason,
                wall_ms=answer.wall_ms,
                first_audio_ms=answer.first_audio_ms,
                lm_ms=answer.lm_ms,
                lm_steps=answer.lm_steps,
                decode_ms=answer.decode_ms,
                decode_calls=answer.decode_calls,
                ran_s=answer.cores.ran_s if answer.cores else None,
                waited_s=answer.cores.waited_s if answer.cores else None,
            )
        )
        self._position += 1
        self.reporter.advance(1)

    def _weigh(self, letter: Letter, server: SpeechServer) -> None:
        found = self._found[letter]
        memory = memory_of(server.process.pid, str(found.config["engine"]["device"]))
        if memory and (found.memory is None or memory.mib > found.memory.mib):
            found.memory = memory

    def _chosen(self, server: SpeechServer) -> Order:
        """What was asked for; else turns, where a second server has room beside the first.

        On a GPU each takes the share of memory that its preset says, so that two have none. An idle
        server takes no processor time.
        """
        if self.order != "auto":
            return self.order
        if self._found["a"].config["engine"]["device"] != "cpu":
            return "blocks"
        first = memory_of(server.process.pid, "cpu")
        free_mib = _available_mib()
        if first is not None and free_mib is not None and free_mib < _ROOM * first.mib:
            self.reporter.notice(
                f"arm A takes {first.mib:.0f} MiB and {free_mib:.0f} are free: "
                "the arms are served one after the other"
            )
            return "blocks"
        return "turns"

    @contextlib.contextmanager
    def _serving(self, letter: Letter) -> Generator[SpeechServer]:
        """A server of the arm; its failures say whose they are."""
        arm, found = self.arms[letter], self._found[letter]
        environment = {"SPEECH_STORE": self.store.root}
        arguments: list[str] = []
        mark = f"arm {letter.upper()}"
        self.reporter.notice(f"{mark}: a server of {arm.label} is started")
        with scratch_folder("ab") as folder:
            if text := arm.table():
                table = folder / "presets.toml"
                table.write_text(text, encoding="utf-8")
                environment[VARIABLE] = str(table)
                # What is tried out here has no checks of its own yet; the result says so.
                arguments = ["--allow-unchecked"]
            try:
                with SpeechServer.running(
                    arm.preset,
                    arguments=arguments,
                    environment=environment,
                    info_is_shown=False,
                ) as server:
                    config = server.config()
                    if found.config and _identity(found.config) != _identity(config):
                        raise AskError(
                            f"{mark}: its weights or settings changed while it was measured; "
                            "run it again"
                        )
                    found.config = config
                    yield server
            except WorkError as error:
                if str(error).startswith("arm "):  # The inner of two servers has said whose it is.
                    raise
                why = str(error).replace(f"{folder}/", "")
                raise WorkError(
                    f"{mark} ({arm.label}): {why}", retryable=error.retryable
                ) from error

    def _raw(self, letter: Letter) -> RawArm:
        found = self._found[letter]
        return RawArm(
            arm=letter,
            label=found.arm.label,
            preset=found.arm.preset,
            settings=shown_settings(found.config["settings"]),
            config_sha256=found.config["config_sha256"],
            weights=found.config["weights"],
            engine=found.config["engine"],
            unchecked=bool(found.arm.changes),
            warmup_clips=found.warmup_clips,
            memory_mib=found.memory.mib if found.memory else None,
            memory_measure=found.memory.measure if found.memory else "",
            rows=tuple(found.rows),
        )

    def _where(self, letter: Letter, ask: Ask) -> str:
        return (
            f"arm {letter.upper()} ({self.arms[letter].label}), sentence {ask.sentence.id} "
            f"({ask.sentence.text!r}), seed {ask.seed}"
        )


@contextlib.contextmanager
def _asker(server: SpeechServer) -> Generator[Asker]:
    # A proxy in the environment is for the wide world, not for what is measured.
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client:
        yield Asker(client, server)


def _identity(config: Mapping[str, Any]) -> tuple[Any, Any]:
    return config["config_sha256"], config["weights"]


def _available_mib() -> float | None:
    try:
        found = _AVAILABLE.search(Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(found[1]) / 1_024 if found else None
