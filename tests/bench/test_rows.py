"""A row of any exchange: what was heard when, and bytes and words of whatever kind."""

from __future__ import annotations

import numpy as np
import pytest
from bench.speaking_server import RATE_HZ, speech
from hypothesis import given, settings
from hypothesis import strategies as st

from speech_assets.bench.exchange import Exchange
from speech_assets.bench.options import FORMATS
from speech_assets.bench.plain import plain_json, plain_words
from speech_assets.bench.rows import row, table


def exchange(*arrivals: tuple[float, bytes]) -> Exchange:
    """Arrivals in ms after clock zero."""
    one = Exchange(0, 0, 1, None, 0.0, dispatched_s=0.0, sent_s=0.0)
    one.arrivals = [(at_ms / 1e3, data) for at_ms, data in arrivals]
    return one


@pytest.mark.parametrize("silent_ms", [505, 515, 525])
def test_speech_is_not_heard_before_it_came_though_its_window_began_in_silence(
    silent_ms: int,
) -> None:
    # The silence plays from 100 ms on, for `silent_ms`; speech comes at 1,000 ms.
    silence = bytes(2 * RATE_HZ * silent_ms // 1_000)
    found = row(exchange((100, silence), (1_000, speech(RATE_HZ))), "pcm")
    assert found["outcome"] == "ok"
    assert found["ttfs_ms"] >= 1_000
    assert found["ttfs_45_ms"] >= 1_000
    assert found["ttfa_ms"] == pytest.approx(100)


def test_speech_in_its_own_chunk_is_heard_where_it_is() -> None:
    found = row(exchange((100, bytes(2 * RATE_HZ) + speech(RATE_HZ))), "pcm")
    assert found["ttfs_ms"] == pytest.approx(1_100, abs=1)
    assert found["ttfs_45_ms"] == pytest.approx(1_090, abs=11)


def test_a_constant_is_silent() -> None:
    found = row(exchange((1, np.full(RATE_HZ, 8_000, "<i2").tobytes())), "pcm")
    assert found["outcome"] == "silent"
    assert found["ttfs_ms"] is None


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(FORMATS),
    start=st.sampled_from([b"", b"RIFF....WAVE", b"OggS\0\2", b"fLaC", b"ID3\3\0\0", b"\xff\xfb"]),
    body=st.binary(max_size=500),
    words=st.text(st.characters(), max_size=50),
)
def test_any_bytes_and_words_make_a_row_that_can_be_kept(
    kind: str, start: bytes, body: bytes, words: str
) -> None:
    one = exchange((1, start + body or b"x"))
    one.content_type = words
    found = row(one, kind)  # pyright: ignore[reportArgumentType]
    assert table([found]).num_rows == 1
    one.failed("http_error", words)
    assert table([row(one, kind)]).num_rows == 1  # pyright: ignore[reportArgumentType]


def test_what_no_decoder_survives_is_one_rows_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("rate")

    # The one mock here: no input is known any more that makes a decoder raise.
    monkeypatch.setattr("speech_assets.bench.rows.decode", fail)
    found = row(exchange((1, b"1234")), "pcm")
    assert found["outcome"] == "garbage"
    assert "cannot be decoded: ZeroDivisionError: rate" in found["error"]
    assert found["bytes"] == 4


def test_words_and_json_are_made_plain() -> None:
    assert plain_words("a\ud800b\x1b[2J\n\u00f6") == "a b [2J \u00f6"
    nested: list[object] = []
    for _ in range(200):
        nested = [nested]
    with pytest.raises(ValueError, match="nests too deep"):
        plain_json(nested)
    assert plain_json({"a": [float("nan"), 1.5, "x"], "b": float("-inf")}) == {
        "a": [None, 1.5, "x"],
        "b": None,
    }
