"""Bearer tokens: what can be one, where they are read, and that no message shows one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.bearer import BearerTokens, presented
from server.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

ONE, OTHER = "a" * 16, "B0._~+-" * 4


def asked(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_without_a_token_everybody_is_let_in() -> None:
    tokens = BearerTokens.read(None, None)
    assert not tokens
    assert tokens.allow({}, is_handshake=False)
    assert BearerTokens.read("", None) == tokens


def test_each_of_several_tokens_is_let_in_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# two of them\n{ONE}\r\n\n  {OTHER}  \n")
    tokens = BearerTokens.read("c" * 20 + ", " + "d" * 20, file)
    for token in (ONE, OTHER, "c" * 20, "d" * 20):
        assert tokens.allow(asked(token), is_handshake=False)
        assert tokens.allow({"authorization": f"bearer  {token}"}, is_handshake=True)
    for wrong in (ONE[:-1], ONE + "a", "# two of them", "", "é" * 16, ONE.upper()):
        assert not tokens.allow(asked(wrong), is_handshake=False)
    for headers in ({"authorization": ONE}, {"authorization": f"Basic {ONE}"}, {}):
        assert not tokens.allow(headers, is_handshake=False)
    assert ONE not in repr(tokens)


def test_a_sockets_offer_counts_as_a_token_and_that_of_a_request_does_not() -> None:
    offer = {"upgrade": "websocket", "sec-websocket-protocol": f"speech, bearer.{ONE}"}
    assert presented(offer, is_handshake=True) == ONE
    assert presented(offer, is_handshake=False) is None


@pytest.mark.parametrize("token", ["short", "a b" * 10, "ü" * 20, "a/b=" * 8, "x" * 513])
def test_what_cannot_be_a_token_is_refused_without_being_shown(tmp_path: Path, token: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{ONE}\n{token}\n")
    with pytest.raises(ConfigurationError, match=r"line 2: a token of .* cannot be used") as raised:
        BearerTokens.read(None, file)
    assert token not in str(raised.value)


def test_a_file_without_tokens_is_no_open_server(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        BearerTokens.read(None, file)
    file.write_text("# nothing\n\n")
    with pytest.raises(ConfigurationError, match="has no token"):
        BearerTokens.read(None, file)
