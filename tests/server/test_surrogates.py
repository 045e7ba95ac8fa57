"""Halves of UTF-16 pairs: joined where they belong together, harmless where they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.sentences import SentenceCutter
from server.socket_messages import SessionConfig
from server.surrogates import joined, without_half
from server.turn import Turn


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""),
        ("plain é \U0001f600", "plain é \U0001f600"),
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00a", "\ufffda"),
        ("\ud83da\ude00", "\ufffda\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
def test_halves_are_joined_and_one_alone_is_replaced(text: str, whole: str) -> None:
    assert joined(text) == whole


@given(st.text(st.characters(), max_size=8))
def test_whatever_is_joined_can_be_encoded(text: str) -> None:
    assert joined(text).encode("utf-8").decode("utf-8") == joined(text)


def test_the_half_that_a_text_ends_with_is_kept_apart() -> None:
    assert without_half("a\ud83d") == ("a", "\ud83d")
    assert without_half("\ud83d") == ("", "\ud83d")
    for text in ("", "a", "a\ude00", "\U0001f600"):
        assert without_half(text) == (text, "")


def turn() -> Turn:
    return Turn(0, SessionConfig(type="session.config"), SentenceCutter("none"))


@given(st.text(max_size=20).filter(lambda text: text == text.strip()), st.data())
def test_a_text_that_is_cut_by_utf_16_units_is_whole_again(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le")
    made = turn()
    at = 0
    while at < len(units):
        end = at + 2 * data.draw(st.integers(1, 4))
        made.add(units[at:end].decode("utf-16-le", "surrogatepass"))
        at = end
    made.end(with_rest=True)
    assert made.cutter.flush() == text


def test_a_half_that_stays_alone_stands_at_the_end_of_its_utterance() -> None:
    made = turn()
    made.add("a\ud83d")
    made.end(with_rest=True)
    assert made.cutter.flush() == "a\ufffd"
