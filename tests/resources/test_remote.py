"""What a server says of a file: odd headers, odd addresses, and settings that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from published import Answer, published

from resources.errors import DownloadError
from resources.patience import LONGEST_ASKED_S, Patience
from resources.remote import look, retry_after_s

if TYPE_CHECKING:
    from pathlib import Path

PATH = "/a.tar.gz"
AT_ONCE = Patience(attempts=2, sleep=lambda _: None)


def test_a_tag_or_size_that_cannot_be_worked_with_is_none() -> None:
    with published({PATH: b"abc"}) as server:
        server.head_script = [
            Answer(etag='"\xe9"', headers={"Last-Modified": "\xe9"}),
            Answer(etag='W/"weak"'),
            Answer(etag='"strong"'),
        ]
        odd, weak, strong = (look(server.url + PATH, AT_ONCE, print) for _ in range(3))
    assert (odd.etag, odd.last_modified, odd.size_bytes) == (None, None, 3)
    assert weak.etag is None
    assert strong.etag == '"strong"'


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("9" * 5000, float("inf")),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 2001 00:00:00 +" + "9" * 20, None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_a_number_or_a_date(
    value: str | None, seconds: float | None
) -> None:
    assert retry_after_s(value) == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "foo://me:secret@bar"),
        ("HTTP_PROXY", "http://me:secret@[::1"),
        ("SSL_CERT_FILE", "/no/such.pem"),
        ("SSL_CERT_FILE", __file__),
    ],
)
def test_an_unusable_setting_of_the_network_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    words = rf"the network's settings cannot be used: .*; correct .*{name}"
    with pytest.raises(DownloadError, match=words) as caught:
        look("http://127.0.0.1:9/a", AT_ONCE, print)
    assert "secret" not in str(caught.value)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    return tmp_path


def test_a_password_is_taken_from_netrc_and_no_address(home: Path) -> None:
    with published({PATH: b"abc"}) as server:
        look(server.url + PATH, AT_ONCE, print)
        assert "authorization" not in server.asked[-1].headers
        address = server.url.replace("//", "//me:secret@") + PATH
        with pytest.raises(DownloadError, match=r"put them into ~/\.netrc") as caught:
            look(address, AT_ONCE, print)
        assert "secret" not in str(caught.value)
        assert server.url in str(caught.value)
        (home / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
        (home / ".netrc").chmod(0o600)
        look(server.url + PATH, AT_ONCE, print)
        assert server.asked[-1].headers["authorization"] == "Basic bWU6c2VjcmV0"
        (home / ".netrc").write_text("machine")
        with pytest.raises(DownloadError, match=r"settings cannot be used: .*\.netrc"):
            look(server.url + PATH, AT_ONCE, print)


@pytest.mark.parametrize("host", [".example.org", "www..example.org", "a" * 64 + ".org"])
def test_a_host_that_nobody_can_have_is_said_at_once(host: str) -> None:
    slept_s: list[float] = []
    patience = Patience(attempts=2, sleep=slept_s.append)
    with pytest.raises(DownloadError, match="no host can have such a name"):
        look(f"http://{host}/a", patience, print)
    with published({}) as server:
        to = {"Location": f"http://{host}/a"}
        server.head_script = [Answer(status=302, headers=to)]
        with pytest.raises(DownloadError, match="or where it is redirected to"):
            look(server.url + PATH, patience, print)
    assert slept_s == []


def test_a_redirect_to_no_web_address_is_said_with_it() -> None:
    with published({}) as server:
        server.head_script = [Answer(status=302, headers={"Location": "file:///etc/passwd"})]
        with pytest.raises(DownloadError, match=r"/etc/passwd\); give an http") as caught:
            look(server.url + PATH, AT_ONCE, print)
    assert server.url in str(caught.value)


def test_a_server_that_restarts_for_five_minutes_is_waited_for() -> None:
    for chance in (0.0, 1.0):
        patience = Patience(chance=lambda chance=chance: chance)
        waits_s = [patience.wait_s(failures) for failures in range(1, patience.attempts)]
        assert 5 * 60 <= sum(waits_s) <= 10.5 * 60
        assert max(waits_s) == patience.longest_s * (0.5 + 0.5 * chance) < LONGEST_ASKED_S
