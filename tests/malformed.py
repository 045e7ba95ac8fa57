"""Requests, messages and frames that are wrong on purpose, drawn by chance."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from speech_servers import SAME

from server.socket_messages import MESSAGES, SessionConfig
from server.speech_options import SpeechBody

if TYPE_CHECKING:
    import random

_REQUEST = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def damaged(chance: random.Random, model: type[SpeechBody | SessionConfig]) -> bytes:
    """A message of a model's fields, with something wrong, or right by chance."""
    odd: list[Any] = [
        *(None, True, -1, 0, 1.5, 1e308, 2**64, "", " ", "x" * 50, "\x00", "\ud800", "é👍🏽"),
        *([], [1], {}, {"id": "heart"}, {"id": {}}, "<" * 30, "&#x" * 9, "NaN"),
    ]
    fields: dict[str, Any] = {"input": "...", "type": "session.config"}
    names = [*model.model_fields, "unknown", "__class__", "", "input\x00"]
    for _ in range(chance.randint(1, 4)):
        fields[chance.choice(names)] = chance.choice(odd)
    if chance.random() < 0.7:
        # Nothing to speak: what is not refused for another fault is for this.
        fields["input"] = chance.choice(["...", "", "\u200b", "🎉", 7, None])
    data = json.dumps(fields).encode()
    match chance.randrange(6):
        case 0:  # Cut short.
            return data[: chance.randrange(len(data))]
        case 1:  # Some bytes are others.
            worn = bytearray(data)
            for _ in range(chance.randint(1, 5)):
                worn[chance.randrange(len(worn))] = chance.randrange(256)
            return bytes(worn)
        case 2:  # Nothing like it.
            return chance.randbytes(chance.randrange(200))
        case 3:  # Deep.
            return chance.choice([b"[", b'{"input":', b'{"a":[']) * chance.randrange(1, 3_000)
        case 4:  # Twice, or in another encoding.
            return chance.choice(
                [data + data, data.decode().encode("utf-16"), b"\xef\xbb\xbf" + data]
            )
        case _:
            return data


def hardly_http(chance: random.Random) -> bytes:
    """A request of which some bytes are others, and an end may be missing."""
    worn = bytearray(_REQUEST)
    for _ in range(chance.randint(1, 6)):
        worn[chance.randrange(len(worn))] = chance.randrange(256)
    return bytes(worn[: chance.randrange(len(worn))] if chance.random() < 0.3 else worn)


def message(chance: random.Random) -> str | bytes:
    """A message of the socket with something wrong; some are right, and say nothing."""
    kind = chance.choice([*MESSAGES, "session.update", "", 7, None])
    match chance.randrange(4):
        case 0:
            text = damaged(chance, SessionConfig)
            return text if chance.random() < 0.2 else text.decode("utf-8", "replace")
        case 1:
            fields = {"type": kind, chance.choice(["text", "a"]): chance.choice([1, None, "", []])}
            return json.dumps(fields)
        case 2:
            return chance.randbytes(chance.randrange(100))
        case _:
            return json.dumps({"type": kind, "text": chance.choice(["...", "\u200b ", "🎉"])})


def frame(chance: random.Random) -> bytes:
    """A WebSocket frame whose head or content is wrong, masked as a client's must be."""
    data = json.dumps({"type": "session.config", **SAME}).encode()
    opcode = chance.choice([0, 1, 1, 1, 2, 3, 7, 8, 9, 10, 11, 15])
    first = opcode | chance.choice([0x80, 0x80, 0x00, 0xC0, 0xF0])
    match chance.randrange(5):
        case 0:  # Not masked.
            return bytes([first, min(len(data), 125)]) + data[:125]
        case 1:  # Says that it is longer than it is, up to what no server takes.
            size = chance.choice([200, 1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
            return bytes([first, 0xFF]) + struct.pack(">Q", size) + b"\0\0\0\0" + data
        case 2:  # Text that is not UTF-8.
            return bytes([first, 0x80 | 4]) + b"\0\0\0\0" + b"\xff\xfe\xc3\x28"
        case 3:  # A close whose code or reason cannot be.
            code = chance.choice([0, 999, 1004, 1005, 1006, 1015, 65_535])
            return bytes([0x88, 0x83]) + b"\0\0\0\0" + struct.pack(">H", code) + b"\xff"
        case _:
            return chance.randbytes(chance.randint(1, 60))
