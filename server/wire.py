"""What the engine's process and an API process say to each other, and its form in bytes.

A frame is its length and kind, then its content. Audio goes as it is: a packed header of utterance
numbers and sample counts, then the samples of all of them in one block. What a reader has taken is
packed, too. All else is a message in msgpack, of which there are a few an utterance.

An utterance's number is given out once in the life of a link, so that nothing of an utterance that
has ended is taken for the next one's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from server.engine import Sampling
from server.speech import Health, SpeechRequest, UtteranceReport
from server.wav import BYTES_PER_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEAD = struct.Struct("<IB")  # Bytes that follow, and their kind.
_MESSAGE, _AUDIO, _TAKEN = range(3)
_COUNT = struct.Struct("<I")
_SAMPLES = struct.Struct("<QI")  # Number of an utterance, and samples.

Audio = tuple[int, bytes]
"""An utterance's number, and the next of its audio."""
Taken = tuple[int, int]
"""An utterance's number, and how many samples its reader has taken."""


class Family(msgspec.Struct, frozen=True, array_like=True):
    """One metric of one process, as `prometheus_client` collects it."""

    name: str
    words: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]


class _Message(msgspec.Struct, frozen=True, tag=True):
    pass


# Of an API process


class Open(_Message, frozen=True):
    """It listens for messages."""


class Answering(_Message, frozen=True):
    """It has the model, and asks for speech what clients ask it for."""


class Speak(_Message, frozen=True):
    """Begin an utterance; answered by `Began` or `Refused`."""

    number: int
    request: SpeechRequest


class Cancel(_Message, frozen=True):
    """Stop an utterance, also while it waits for a place."""

    number: int


class Unfinished(_Message, frozen=True):
    """While it ends: streams that are not delivered, and whether anything at all is open."""

    streams: int
    busy: bool


class Figures(_Message, frozen=True):
    """Its metrics, now; `number` is that of the `Collect` they were asked for by, if they were."""

    families: list[Family]
    number: int | None = None


class Scrape(_Message, frozen=True):
    """A client wants the metrics of all processes."""

    number: int


# Of the engine's process


class Loaded(_Message, frozen=True):
    """What is served, once it is loaded: `serving.Model` without its service."""

    names: tuple[str, ...]
    voices: tuple[str, ...]
    sampling: Sampling
    config: dict[str, Any]
    started_at: int
    health: Health


class Began(_Message, frozen=True):
    """The utterance has a place, and its text can be spoken."""

    number: int


class Refused(_Message, frozen=True):
    """The utterance will not be; `kind` and the other fields are the error's."""

    number: int
    kind: Literal["overloaded", "bad_request", "broken"]
    words: str
    param: str | None = None
    code: str = "invalid_value"
    retry_after_s: int = 1


class Ended(_Message, frozen=True):
    """Nothing more comes of the utterance."""

    number: int
    report: UtteranceReport


class HealthIs(_Message, frozen=True):
    """How the service is, when that has changed."""

    health: Health


class Collect(_Message, frozen=True):
    """Send `Figures`."""

    number: int


class Scraped(_Message, frozen=True):
    """The metrics of all processes, the engine's first; those that are gone are in the second."""

    number: int
    processes: list[list[Family]]


class Finish(_Message, frozen=True):
    """Take no new speech and finish what has begun."""

    state: Literal["draining", "failed"]


class Close(_Message, frozen=True):
    """End now."""


Message = (
    Open
    | Answering
    | Speak
    | Cancel
    | Unfinished
    | Figures
    | Scrape
    | Loaded
    | Began
    | Refused
    | Ended
    | HealthIs
    | Collect
    | Scraped
    | Finish
    | Close
)


@dataclass(frozen=True, slots=True)
class Frame:
    """What one frame held: a message, or audio of utterances, or what was taken."""

    message: Message | None = None
    audio: Sequence[Audio] = ()
    taken: Sequence[Taken] = ()


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def packed(audio: Sequence[Audio], taken: Iterable[Taken], messages: Iterable[Message]) -> bytes:
    """Frames for the socket: audio, what was taken, then messages, an utterance's end last."""
    frames: list[bytes] = []
    if audio:
        heads = [_SAMPLES.pack(number, len(chunk) // BYTES_PER_SAMPLE) for number, chunk in audio]
        block = b"".join(chunk for _, chunk in audio)
        frames += _frame(_AUDIO, _COUNT.pack(len(audio)), *heads, block)
    if counts := [_SAMPLES.pack(number, samples) for number, samples in taken]:
        frames += _frame(_TAKEN, *counts)
    for message in messages:
        frames += _frame(_MESSAGE, _ENCODER.encode(message))
    return b"".join(frames)


class Unpacker:
    """Takes bytes as they come, and gives what they hold once it is whole."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """What has become whole with `data`."""
        kept = self._kept
        kept += data
        begin = 0
        while len(kept) - begin >= _HEAD.size:
            size, kind = _HEAD.unpack_from(kept, begin)
            end = begin + _HEAD.size + size
            if len(kept) < end:
                break
            content = bytes(memoryview(kept)[begin + _HEAD.size : end])
            begin = end
            yield _unpacked(kind, content)
        del kept[:begin]


def _unpacked(kind: int, content: bytes) -> Frame:
    if kind == _MESSAGE:
        return Frame(message=_DECODER.decode(content))
    if kind == _TAKEN:
        return Frame(taken=list(_SAMPLES.iter_unpack(content)))
    (count,) = _COUNT.unpack_from(content)
    begin = _COUNT.size + count * _SAMPLES.size
    audio: list[Audio] = []
    for number, samples in _SAMPLES.iter_unpack(content[_COUNT.size : begin]):
        end = begin + samples * BYTES_PER_SAMPLE
        audio.append((number, content[begin:end]))
        begin = end
    return Frame(audio=audio)


def _frame(kind: int, *content: bytes) -> list[bytes]:
    return [_HEAD.pack(sum(map(len, content)), kind), *content]
