"""The codec on a thread and in a process of its own: the same audio, in order, and no hang."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
import torch
from lineage_run import wait_for
from speech_servers import is_running

from server.codec import load_codec
from server.codec_calls import CallsEnded, Decoder, OpenCalls, run_calls
from server.codec_decoder import CodecDecoder, DecoderOptions
from server.codec_process import ProcessDecoder
from server.codec_rows import DecodeRow
from server.codec_thread import ThreadDecoder
from server.errors import ConfigurationError, EngineDiedError, ServerError, WeightsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"
OPTIONS = DecoderOptions(batch_sizes=(1, 2, 4))
Open = Callable[[Path, DecoderOptions], Decoder]


def on_engine_thread(folder: Path, options: DecoderOptions) -> CodecDecoder:
    torch.set_num_threads(1)
    return CodecDecoder(load_codec(folder), options)


def on_thread(folder: Path, options: DecoderOptions) -> ThreadDecoder:
    return ThreadDecoder(lambda: on_engine_thread(folder, options))


def in_process(folder: Path, options: DecoderOptions) -> ProcessDecoder:
    return ProcessDecoder(folder, "cpu", options, threads=1)


elsewhere = pytest.mark.parametrize("open_decoder", [on_thread, in_process])


def calls() -> list[tuple[list[DecodeRow], int]]:
    """Calls of every hop and of several sizes: starts, middles and ends, of any seed."""
    draw = np.random.default_rng(3)
    codes = draw.integers(0, 4_096, 30 * 7).astype(np.uint16)
    made: list[tuple[list[DecodeRow], int]] = [([], 2)]
    for size, hop in ((1, 1), (3, 4), (5, 2), (1, 4), (7, 1), (2, 2)):
        rows = [
            DecodeRow(codes[: 7 * frames], start, latents, end, seed)
            for frames, start, latents, end, seed in (
                (hop, 0, 4 * hop, 4 * hop, 1),
                (20, 17, 4 * hop - 1, 80, 2**80 + 7),
                (30, 120 - 4 * hop, 4 * hop, 120, -5),
            )
        ]
        made.append(((rows * 3)[:size], hop))
    return made


@pytest.fixture(scope="module")
def expected() -> list[list[NDArray[np.int16]]]:
    decoder = on_engine_thread(CODEC, OPTIONS)
    return [decoder.decode(rows, hop) for rows, hop in calls()]


@contextlib.contextmanager
def opened(open_decoder: Open) -> Generator[Decoder]:
    decoder = open_decoder(CODEC, OPTIONS)
    try:
        decoder.warm_up()
        yield decoder
    finally:
        decoder.close()


@elsewhere
def test_many_calls_at_once_give_the_audio_of_the_engines_thread_in_their_order(
    open_decoder: Open, expected: list[list[NDArray[np.int16]]]
) -> None:
    with opened(open_decoder) as decoder:
        heard: queue.SimpleQueue[ServerError | None] = queue.SimpleQueue()
        decoder.watch(heard.put)
        tickets = [decoder.submit(rows, hop) for rows, hop in calls() * 3]
        for count, _ in enumerate(tickets, start=1):
            assert heard.get() is None
            assert all(ticket.ready() for ticket in tickets[:count])
        for ticket, blocks in zip(tickets, expected * 3, strict=True):
            for block, wanted in zip(ticket.pcm(), blocks, strict=True):
                np.testing.assert_array_equal(block, wanted)


@elsewhere
def test_a_codec_that_cannot_open_says_so_as_ever_and_leaves_nothing(
    open_decoder: Open, tmp_path: Path
) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(WeightsError, match=r"config\.json"):
        open_decoder(tmp_path, OPTIONS)
    with pytest.raises(ConfigurationError, match="codec kernels triton"):
        open_decoder(CODEC, DecoderOptions(kernels="triton"))
    with pytest.raises(EngineDiedError, match="stopped: TypeError"):
        open_decoder(CODEC, DecoderOptions(hops=3))  # pyright: ignore[reportArgumentType]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert_nothing_runs()


@elsewhere
def test_what_is_closed_has_released_all_and_refuses_calls(open_decoder: Open) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with opened(open_decoder) as decoder:
        ticket = decoder.submit(*calls()[1])
    assert len(ticket.pcm()) == 1  # Begun, it was finished; or else it would have been refused.
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert_nothing_runs()
    with pytest.raises(EngineDiedError, match="the codec is closed"):
        decoder.submit(*calls()[1])


def test_a_row_that_is_wrong_is_refused_before_it_travels() -> None:
    with opened(in_process) as decoder:
        with pytest.raises(ValueError, match="emit no latent before its codes are there"):
            decoder.submit([DecodeRow(np.zeros(7, np.uint16), 0, 4, 9, 1)], 1)
        with pytest.raises(ConfigurationError, match=r"hop 3 is not among \(1, 2, 4\)"):
            decoder.submit([], 3)
        assert decoder.submit([], 1).pcm() == []


def test_an_error_on_the_codecs_thread_ends_all_calls_with_it() -> None:
    with opened(on_thread) as decoder:
        heard: queue.SimpleQueue[ServerError | None] = queue.SimpleQueue()
        decoder.watch(heard.put)
        ticket = decoder.submit([DecodeRow(np.zeros(7, np.uint16), 0, 4, 9, 1)], 1)
        with pytest.raises(EngineDiedError, match="codec's thread stopped: ValueError: row 0"):
            ticket.pcm()
        assert ticket.ready()
        assert isinstance(heard.get(), EngineDiedError)
        with pytest.raises(EngineDiedError, match="ValueError: row 0"):
            decoder.submit(*calls()[1])


def test_an_error_in_the_codecs_process_ends_all_calls_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is staged here is right; so a wrong hop has to be sent past what looks at it.
    with opened(in_process) as decoder:
        assert isinstance(decoder, ProcessDecoder)
        monkeypatch.setattr("server.codec_process.geometry_of", lambda of, hop: of[1])
        ticket = decoder.submit([DecodeRow(np.zeros(7, np.uint16), 0, 4, 4, 1)], 3)
        with pytest.raises(EngineDiedError, match="codec's process stopped: KeyError: 3"):
            ticket.pcm()
        wait_for(lambda: not is_running(decoder.pid), "the process has ended")


def test_a_killed_process_ends_all_calls_with_its_exit_code() -> None:
    with opened(in_process) as decoder:
        assert isinstance(decoder, ProcessDecoder)
        heard: queue.SimpleQueue[ServerError | None] = queue.SimpleQueue()
        decoder.watch(heard.put)
        os.kill(decoder.pid, signal.SIGSTOP)
        tickets = [decoder.submit(*calls()[2]) for _ in range(3)]
        assert not any(ticket.ready() for ticket in tickets)
        os.kill(decoder.pid, signal.SIGKILL)
        for ticket in tickets:
            with pytest.raises(EngineDiedError, match="ended with exit code -9"):
                ticket.pcm()
        assert isinstance(heard.get(), EngineDiedError)
        with pytest.raises(EngineDiedError, match="ended with exit code -9"):
            decoder.submit(*calls()[2])


def test_an_answer_that_is_none_ends_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(in_process) as decoder:
        assert isinstance(decoder, ProcessDecoder)
        monkeypatch.setattr("server.codec_process.receive", lambda *_: b"\xff")
        tickets = [decoder.submit(*calls()[2]) for _ in range(3)]
        for ticket in tickets:
            with pytest.raises(EngineDiedError, match="codec's reader stopped: "):
                ticket.pcm()
        wait_for(lambda: not is_running(decoder.pid), "the process has ended")


def test_who_watches_a_codec_that_has_failed_hears_of_it_at_once() -> None:
    failed, heard = OpenCalls(), list[ServerError | None]()
    failed.fail(error := EngineDiedError("pulled by the test"))
    failed.watch(heard.append)
    assert heard == [error]


@dataclass
class Device:
    """A device that has done a call when somebody waits for it; `log` is what was asked of it."""

    coming: list[int]
    log: list[str] = field(default_factory=list[str])

    def take(self, wait: bool) -> list[Part] | None:
        if not self.coming:
            if wait:
                raise CallsEnded
            return None
        number = self.coming.pop(0)
        self.log.append(f"start {number}")
        return [Part(self, number)]

    def give(self, parts: object) -> None:
        self.log.append("give")


@dataclass
class Part:
    device: Device
    number: int

    def ready(self) -> bool:
        return False

    def result(self) -> NDArray[np.int16]:
        self.device.log.append(f"wait {self.number}")
        return np.zeros((1, 2_048), np.int16)


def test_what_has_come_is_started_before_an_older_call_is_waited_for() -> None:
    device = Device([1, 2, 3])
    run_calls(device.take, device.give)
    assert device.log == [
        *("start 1", "start 2", "start 3"),
        *("wait 1", "give", "wait 2", "give", "wait 3", "give"),
    ]


def assert_nothing_runs() -> None:
    assert not [t for t in threading.enumerate() if t.name.startswith("codec")]
    assert not [c for c in psutil.Process().children() if "server.codec_child" in c.cmdline()]
