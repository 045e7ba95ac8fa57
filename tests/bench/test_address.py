"""Addresses: every form that people paste, what is none, and what is never shown."""

from __future__ import annotations

import base64

import pytest

from speech_assets.bench.address import Address, shown
from speech_assets.bench.errors import BenchError
from speech_assets.bench.options import BenchOptions


@pytest.mark.parametrize(
    ("url", "http", "socket"),
    [
        ("http://a:1", "http://a:1", "ws://a:1"),
        ("https://a/v1/", "https://a", "wss://a"),
        ("ws://a:1/x/v1/audio/speech/stream", "http://a:1/x", "ws://a:1/x"),
        ("http://a:1/v1/audio/speech", "http://a:1", "ws://a:1"),
        ("http://[::1]:80", "http://[::1]:80", "ws://[::1]:80"),
        ("http://é.example/", "http://é.example", "ws://é.example"),
    ],
)
def test_any_form_of_the_address_is_understood(url: str, http: str, socket: str) -> None:
    assert BenchOptions(url).speech_url == f"{http}/v1/audio/speech"
    assert BenchOptions(url, api="ws").speech_url == f"{socket}/v1/audio/speech/stream"
    assert BenchOptions(url).base_url == http


def test_a_query_goes_with_every_request_and_a_user_is_a_header() -> None:
    options = BenchOptions("http://me:p%40ss@a:1/v1?key=k&v=2")
    assert options.speech_url == "http://a:1/v1/audio/speech?key=k&v=2"
    assert options.base_url == "http://a:1"
    words = base64.b64encode(b"me:p@ss").decode()
    assert options.all_headers == {"Authorization": f"Basic {words}"}


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:8000", "ftp://x", "http://", "http://a b/", "http://%zz/", "http://a..b/"),
        *("http://x:99999/", "http://x:0", "http://[::1", "http://x\n.y/", "http://a/\tb"),
        *("http://localhost:port", f"http://{'a' * 64}/", "http://a,b/", "http://[zz]/"),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BenchError, match="is no address; write it as http://host:port"):
        Address.parse(url)


def test_neither_user_nor_query_is_ever_shown() -> None:
    url = "http://me:hush@a:1/x?key=hush"
    assert shown(url) == "http://...@a:1/x?..."
    assert shown(f"no connection to {url} today") == "no connection to http://...@a:1/x?... today"
    with pytest.raises(BenchError) as error:
        Address.parse("http://me:hush@a b?key=hush")
    assert "hush" not in str(error.value)


def test_a_user_and_a_header_of_authorization_are_one_too_many() -> None:
    with pytest.raises(BenchError, match="leave one out"):
        BenchOptions("http://me:hush@a", headers=(("authorization", "Bearer x"),))
