"""A download from a server that cuts, lies, refuses, changes and comes back; and killed clients."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import pytest
from lineage_run import ending
from published import Answer, Publisher, answering, published

from resources.download import Downloaded, download
from resources.errors import ChangedError, DownloadError
from resources.part import held_bytes, part_of
from resources.patience import Patience
from resources.remote import RemoteFile, look

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CONTENT = random.Random(7).randbytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
PATH = "/a.tar.gz"


@dataclass
class Waiting:
    """Patience that does not wait, and notes how long it would have."""

    slept_s: list[float] = field(default_factory=list[float])
    lines: list[str] = field(default_factory=list[str])

    def patience(self, attempts: int = 4) -> Patience:
        return Patience(attempts=attempts, sleep=self.slept_s.append, chance=lambda: 1.0)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with published({PATH: CONTENT}) as publisher:
        yield publisher


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def fetch(
    publisher: Publisher, target: Path, waiting: Waiting, md5: str | None = MD5
) -> Downloaded:
    patience = waiting.patience()
    wanted = look(publisher.url + PATH, patience, waiting.lines.append)
    return download(wanted, target, md5=md5, report=waiting.lines.append, patience=patience)


def refusal(publisher: Publisher, target: Path, waiting: Waiting) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        fetch(publisher, target, waiting)
    assert "\n" not in str(caught.value)
    return caught.value


def left(target: Path) -> list[str]:
    return sorted(p.name for p in target.parent.iterdir() if not p.name.startswith("."))


def test_a_file_is_downloaded_whole_and_nothing_else_is_left(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    done = fetch(publisher, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert (done.size_bytes, done.md5, done.received_bytes) == (len(CONTENT), MD5, len(CONTENT))
    assert left(tmp_path / "a") == ["a"]
    assert waiting.slept_s == []
    again = fetch(publisher, tmp_path / "a", waiting)
    assert (again.md5, again.received_bytes) == (MD5, 0)
    assert publisher.gets() == [None]


def test_a_broken_connection_is_gone_on_with_from_where_it_broke(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(cut_after=100_000), Answer(cut_after=50_000)]
    done = fetch(publisher, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert publisher.gets() == [None, "bytes=100000-", "bytes=150000-"]
    assert done.received_bytes == len(CONTENT)
    assert waiting.slept_s == [1.0, 2.0]
    assert "the connection broke" in waiting.lines[0]
    assert publisher.asked[-1].headers["if-range"].startswith('"')


def test_what_a_killed_process_left_is_gone_on_with(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(cut_after=200_000), *[Answer(status=503)] * 3]
    error = refusal(publisher, tmp_path / "a", waiting)
    assert "503 Service Unavailable; gave up after 4 attempts" in str(error)
    assert error.retryable
    assert left(tmp_path / "a") == ["a.part", "a.part.json"]
    wanted = look(publisher.url + PATH, waiting.patience(), waiting.lines.append)
    assert held_bytes(wanted, tmp_path / "a", MD5) == 200_000
    done = fetch(publisher, tmp_path / "a", waiting)
    assert done.received_bytes == 100_000
    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("refusal", [Answer(ignore_range=True), Answer(refuse_range=True)])
def test_what_a_server_without_ranges_sends_again_is_compared_with_what_is_here(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, refusal: Answer
) -> None:
    again = dataclasses.replace(refusal, cut_after=40_000)
    asked_once = [refusal] * refusal.refuse_range
    publisher.script = [Answer(cut_after=100_000), *asked_once, again, again, refusal]
    parts: list[bytes] = []

    def sleep(_: float) -> None:
        parts.append(part_of(tmp_path / "a").read_bytes())

    wanted = look(publisher.url + PATH, waiting.patience(), waiting.lines.append)
    patience = Patience(attempts=4, sleep=sleep)
    download(wanted, tmp_path / "a", md5=MD5, report=waiting.lines.append, patience=patience)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert parts == [CONTENT[:100_000]] * 3
    assert any("does not go on at 100000; it sends the file" in line for line in waiting.lines)
    ranged = [range_ for range_ in publisher.gets() if range_]
    assert ranged == ["bytes=100000-"] * (1 if refusal.refuse_range else 3)


@pytest.mark.parametrize("kind", ["refuses ranges", "ignores ranges"])
def test_who_never_gets_further_gives_up_and_keeps_the_furthest(
    tmp_path: Path, waiting: Waiting, kind: str
) -> None:
    content = random.Random(8).randbytes(8 << 20)
    refused = Answer(refuse_range=True, cut_after=2 << 20)
    ignored = [Answer(ignore_range=True, cut_after=n << 20) for n in (6, 2)]
    with published({PATH: content}) as publisher:
        publisher.script = [refused] * 40 if kind == "refuses ranges" else ignored * 20
        with pytest.raises(DownloadError, match="gave up after 4 attempts without progress"):
            fetch(publisher, tmp_path / "a", waiting, None)
    furthest = 2 << 20 if kind == "refuses ranges" else 6 << 20
    assert part_of(tmp_path / "a").read_bytes() == content[:furthest]
    assert waiting.slept_s == [1.0, 2.0, 4.0]


def test_a_server_without_etag_that_has_another_file_of_the_same_size_is_an_error(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    first, later = ({"Last-Modified": f"Mon, 0{day} Jan 2024 00:00:00 GMT"} for day in (1, 8))
    publisher.head_script = [Answer(etag="", headers=first)]
    publisher.script = [
        Answer(etag="", headers=first, cut_after=100_000),
        Answer(etag="", headers=later, content=bytes(len(CONTENT))),
    ]
    with pytest.raises(ChangedError, match=r"its Last-Modified was Mon, 01 .*, is Mon, 08 "):
        fetch(publisher, tmp_path / "a", waiting, None)
    assert publisher.gets() == [None, "bytes=100000-"]
    assert part_of(tmp_path / "a").read_bytes() == CONTENT[:100_000]


def test_a_range_that_does_not_show_whose_it_is_is_not_taken(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    other = bytes(100_000) + CONTENT[100_000:]
    publisher.script = [
        Answer(cut_after=150_000),
        Answer(etag="", content=other),
        Answer(etag="", content=other),
    ]
    fetch(publisher, tmp_path / "a", waiting, None)
    assert publisher.gets() == [None, "bytes=150000-", None]
    assert (tmp_path / "a").read_bytes() == other
    assert any("other bytes than are here from 0 on" in line for line in waiting.lines)


def test_a_range_of_a_size_that_nobody_has_is_not_taken(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    said = {"Content-Range": f"bytes 150000-299999/{'9' * 5000}"}
    publisher.script = [Answer(cut_after=150_000), Answer(status=206, headers=said)]
    fetch(publisher, tmp_path / "a", waiting)
    assert publisher.gets() == [None, "bytes=150000-", None]
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_a_part_that_is_longer_than_the_file_does_not_lengthen_it(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(cut_after=100_000), *[Answer(status=503)] * 3]
    refusal(publisher, tmp_path / "a", waiting)
    part_of(tmp_path / "a").write_bytes(CONTENT + b"more")
    fetch(publisher, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "answer", [Answer(status=206), Answer(status=206, headers={"ETag": '"x"'}), Answer(status=416)]
)
def test_a_part_where_the_whole_was_asked_for_is_refused(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, answer: Answer
) -> None:
    publisher.script = [answer]
    error = refusal(publisher, tmp_path / "a", waiting)
    assert f"answers {answer.status} where the whole file was asked for" in str(error)
    assert len(publisher.gets()) == 1


def test_bytes_of_another_content_are_never_appended_to(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(cut_after=100_000), *[Answer(status=503)] * 3]
    refusal(publisher, tmp_path / "a", waiting)
    other = bytes(reversed(CONTENT))
    publisher.files[PATH] = other
    fetch(publisher, tmp_path / "a", waiting, hashlib.md5(other).hexdigest())
    assert (tmp_path / "a").read_bytes() == other
    assert publisher.gets()[-1] is None
    said = r"a\.part: 100000 bytes are deleted: the file's etag was \"\w+\", is \"\w+\""
    assert any(re.fullmatch(said, line) for line in waiting.lines)


@pytest.mark.parametrize("md5", [MD5, None])
def test_a_part_goes_on_at_a_mirror_when_a_checksum_judges_it(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, md5: str | None
) -> None:
    publisher.script = [Answer(cut_after=100_000), *[Answer(status=503)] * 3]
    with pytest.raises(DownloadError):
        fetch(publisher, tmp_path / "a", waiting, md5)
    with published({PATH: CONTENT}) as mirror:
        mirror.head_script = [Answer(etag='"mirror"')]
        mirror.script = [Answer(etag='"mirror"')]
        done = fetch(mirror, tmp_path / "a", waiting, md5)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert mirror.gets() == ["bytes=100000-" if md5 else None]
    assert done.received_bytes == len(CONTENT) - (100_000 if md5 else 0)
    deleted = [line for line in waiting.lines if "100000 bytes are deleted" in line]
    assert len(deleted) == (0 if md5 else 1)
    assert all(f"url was {publisher.url}{PATH}, is {mirror.url}{PATH}" in line for line in deleted)


def test_a_mirror_with_another_file_of_the_same_size_is_found_by_the_checksum(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(cut_after=100_000), *[Answer(status=503)] * 3]
    refusal(publisher, tmp_path / "a", waiting)
    with published({PATH: bytes(len(CONTENT))}) as mirror:
        assert "must be" in str(refusal(mirror, tmp_path / "a", waiting))
    assert left(tmp_path / "a") == []
    fetch(publisher, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("ignore_range", [True, False])
def test_a_content_that_changes_between_two_parts_is_an_error_with_both_values(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, ignore_range: bool
) -> None:
    changed = Answer(etag='"new"', content=bytes(len(CONTENT)), ignore_range=ignore_range)
    publisher.script = [Answer(cut_after=100_000), changed]
    with pytest.raises(ChangedError, match=r'its ETag was "\w{16}", is "new"'):
        fetch(publisher, tmp_path / "a", waiting)
    assert not (tmp_path / "a").exists()
    assert part_of(tmp_path / "a").read_bytes() == CONTENT[:100_000]


def test_a_content_of_another_size_is_an_error_with_both_numbers(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    wanted = look(publisher.url + PATH, waiting.patience(), waiting.lines.append)
    publisher.files[PATH] = CONTENT[:1000]
    shorter = RemoteFile(wanted.url, wanted.size_bytes)
    with pytest.raises(ChangedError, match="its size was 300000, is 1000"):
        download(shorter, tmp_path / "a", md5=None, report=print, patience=waiting.patience())


def test_a_server_that_promises_more_than_it_sends_is_named_with_both_numbers(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.head_script = [Answer(promised=400_000)]
    publisher.script = [Answer(promised=400_000)]
    error = refusal(publisher, tmp_path / "a", waiting)
    assert isinstance(error, ChangedError)
    assert "its size was 400000, is 300000" in str(error)
    assert publisher.gets() == [None, "bytes=300000-"]


def test_a_body_shorter_than_the_file_is_asked_for_again_and_then_given_up(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(cut_after=0) for _ in range(4)]
    error = refusal(publisher, tmp_path / "a", waiting)
    assert "the connection broke" in str(error)
    assert "gave up after 4 attempts" in str(error)
    assert waiting.slept_s == [1.0, 2.0, 4.0]


def test_a_server_that_promises_less_than_the_file_has_is_found_by_the_checksum(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.head_script = [Answer(promised=1000)]
    publisher.script = [Answer(promised=1000)]
    error = refusal(publisher, tmp_path / "a", waiting)
    assert f"md5 is {hashlib.md5(CONTENT[:1000]).hexdigest()}, must be {MD5}" in str(error)


def test_a_wrong_checksum_deletes_the_file_and_names_both(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    damaged = CONTENT[:-1] + b"\0"
    publisher.files[PATH] = damaged
    error = refusal(publisher, tmp_path / "a", waiting)
    assert f"md5 is {hashlib.md5(damaged).hexdigest()}, must be {MD5}" in str(error)
    assert left(tmp_path / "a") == []
    publisher.files[PATH] = CONTENT
    fetch(publisher, tmp_path / "a", waiting)


def test_a_checksum_is_the_same_in_capitals_and_refused_when_it_is_none(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    fetch(publisher, tmp_path / "a", waiting, MD5.upper())
    fetch(publisher, tmp_path / "a", waiting, MD5.upper())
    with pytest.raises(DownloadError, match="md5 'abc' is not 32 hex digits"):
        fetch(publisher, tmp_path / "a", waiting, "abc")
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_what_is_there_already_is_never_deleted_and_named_when_it_is_another(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    (tmp_path / "a").write_bytes(bytes(len(CONTENT)))
    (tmp_path / "a.json").write_text("mine")
    assert "it was there before: delete it" in str(refusal(publisher, tmp_path / "a", waiting))
    assert left(tmp_path / "a") == ["a", "a.json"]
    assert publisher.gets() == []


def test_a_part_of_a_file_that_came_by_other_means_is_deleted(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(cut_after=100_000), *[Answer(status=503)] * 3]
    refusal(publisher, tmp_path / "a", waiting)
    (tmp_path / "a").write_bytes(CONTENT)
    fetch(publisher, tmp_path / "a", waiting)
    assert left(tmp_path / "a") == ["a"]
    assert "a.part: deleted, as a is here" in waiting.lines
    (tmp_path / "a.part").write_bytes(b"mine, as there is no note")
    fetch(publisher, tmp_path / "a", waiting)
    assert left(tmp_path / "a") == ["a", "a.part"]


def test_computers_behind_one_address_may_tag_the_same_bytes_differently_when_a_checksum_is_known(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    def by_turns() -> None:
        publisher.head_script = [Answer(etag='"one"')]
        publisher.script = [
            Answer(etag='"two"', cut_after=100_000),
            Answer(etag='"three"', cut_after=150_000),
            Answer(status=206, etag='"four"'),
            Answer(etag='"five"'),
        ]

    by_turns()
    fetch(publisher, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT
    by_turns()
    with pytest.raises(ChangedError, match=r'its ETag was "one", is "two"; .* another mirror'):
        fetch(publisher, tmp_path / "b", waiting, None)


def test_a_body_that_drips_is_as_good_as_a_silent_one(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    wanted = look(publisher.url + PATH, waiting.patience(), waiting.lines.append)
    publisher.script = [Answer(cut_after=100_000, drip=True) for _ in range(2)]
    patience = dataclasses.replace(waiting.patience(2), slow_s=0.1)
    with pytest.raises(DownloadError, match=r"only \d+ bytes came in \d+ s; gave up") as caught:
        download(wanted, tmp_path / "a", md5=None, report=print, patience=patience)
    assert caught.value.retryable


def test_a_busy_server_is_asked_again_when_it_says(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [
        Answer(status=503, headers={"Retry-After": "7"}),
        Answer(status=429, headers={"Retry-After": "Mon, 01 Jan 2001 00:00:00 GMT"}),
    ]
    fetch(publisher, tmp_path / "a", waiting)
    assert waiting.slept_s == [7.0, 2.0]
    assert "answers 503 Service Unavailable; attempt 2 of 4 in 7 s" in waiting.lines[0]


def test_a_server_that_asks_for_an_hour_is_not_waited_for(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    publisher.script = [Answer(status=503, headers={"Retry-After": "3600"})]
    assert "come back after 3600 s" in str(refusal(publisher, tmp_path / "a", waiting))
    assert waiting.slept_s == []


@pytest.mark.parametrize("value", ["9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT", "172801"])
def test_a_wait_that_nobody_lives_to_see_is_said_in_words(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, value: str
) -> None:
    publisher.script = [Answer(status=503, headers={"Retry-After": value})]
    said = str(refusal(publisher, tmp_path / "a", waiting))
    assert "asks to come back after more than two days; run again then, or take another" in said
    assert waiting.slept_s == []


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"no header at all " * 100 + b"\r\n\r\n",
    ],
    ids=["mail", "no length", "two lengths", "large header", "no header"],
)
def test_a_server_that_speaks_no_http_is_said_after_two_attempts(
    waiting: Waiting, answer: bytes
) -> None:
    with answering(answer) as (url, seen), pytest.raises(DownloadError) as caught:
        look(url, waiting.patience(), waiting.lines.append)
    said = str(caught.value)
    assert said.startswith(f"{url}: the answer is no HTTP (")
    assert "; so it was 2 times: take another mirror" in said
    assert len(said) < 450
    assert (len(seen), len(waiting.slept_s), caught.value.retryable) == (2, 1, False)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "404 Not Found: no such file there; check url and the catalogue"),
        (403, "403 Forbidden: access is refused"),
        (418, "the server answers 418"),
    ],
)
def test_a_refusal_is_not_repeated(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, status: int, words: str
) -> None:
    publisher.script = [Answer(status=status)]
    assert words in str(refusal(publisher, tmp_path / "a", waiting))
    assert len(publisher.gets()) == 1


def test_a_file_that_is_not_there_is_said_when_it_is_looked_at(
    publisher: Publisher, waiting: Waiting
) -> None:
    with pytest.raises(DownloadError, match="404 Not Found: no such file there"):
        look(f"{publisher.url}/other", waiting.patience(), waiting.lines.append)


def test_an_address_where_nobody_listens_is_said_after_every_attempt(waiting: Waiting) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/a"
        with pytest.raises(DownloadError, match=r"no connection: .*Connection refused") as caught:
            look(url, waiting.patience(), waiting.lines.append)
    assert caught.value.retryable
    assert waiting.slept_s == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a", "http://[::1/a"])
def test_an_address_that_cannot_work_is_not_tried_again(waiting: Waiting, url: str) -> None:
    with pytest.raises(DownloadError):
        look(url, waiting.patience(), waiting.lines.append)
    assert waiting.slept_s == []


def test_a_server_without_tls_where_it_is_asked_for_is_said_at_once(
    publisher: Publisher, waiting: Waiting
) -> None:
    url = publisher.url.replace("http:", "https:")
    with pytest.raises(DownloadError, match=r"TLS failed: .*; check the clock"):
        look(url, waiting.patience(), waiting.lines.append)
    assert waiting.slept_s == []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a key and a certificate of this machine that only it itself has signed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", "key.pem", "-out", "certificate.pem"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join((tmp_path / f"{n}.pem").read_bytes() for n in ("key", "certificate")))
    return both


def secured_by(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_that_nobody_signed_is_refused_at_once(
    certificate: Path, waiting: Waiting
) -> None:
    with (
        published({PATH: CONTENT}, tls=secured_by(certificate)) as secured,
        pytest.raises(DownloadError, match="TLS failed: self-signed certificate"),
    ):
        look(secured.url + PATH, waiting.patience(), waiting.lines.append)
    assert waiting.slept_s == []


def test_a_body_that_is_damaged_within_tls_is_gone_on_with(
    certificate: Path, tmp_path: Path, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with published({PATH: CONTENT}, tls=secured_by(certificate)) as secured:
        secured.script = [Answer(cut_after=100_000, damage=True)]
        fetch(secured, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert waiting.slept_s == [1.0]
    (begin,) = (range_ for range_ in secured.gets() if range_)
    assert 0 < int(begin.removeprefix("bytes=").removesuffix("-")) <= 100_000


def test_a_server_that_closes_during_the_handshake_is_asked_again(waiting: Waiting) -> None:
    with (
        answering(b"") as (url, seen),
        pytest.raises(DownloadError, match=r"no connection: .*gave up after 4") as caught,
    ):
        look(url.replace("http:", "https:"), waiting.patience(), waiting.lines.append)
    assert caught.value.retryable
    assert len(seen) == 4


def test_a_full_disk_keeps_what_was_received(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Else the process is ended by it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        error = refusal(publisher, tmp_path / "a", waiting)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "a.part: the disk is full; free space and run again" in str(error)
    held = part_of(tmp_path / "a").stat().st_size
    assert 0 < held <= 100_000
    assert fetch(publisher, tmp_path / "a", waiting).received_bytes == len(CONTENT) - held


def test_a_file_that_another_process_downloads_is_left_to_it(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    with filelock.FileLock(tmp_path / ".a.lock"):
        error = refusal(publisher, tmp_path / "a", waiting)
    assert "is being downloaded by another process" in str(error)
    assert error.retryable


def test_a_part_of_which_nothing_tells_whose_it_is_is_not_used(
    publisher: Publisher, tmp_path: Path, waiting: Waiting
) -> None:
    for note in (None, b"", b"[]", json.dumps({"url": "other"}).encode()):
        part_of(tmp_path / "a").write_bytes(b"of another file")
        if note is not None:
            (tmp_path / "a.part.json").write_bytes(note)
        fetch(publisher, tmp_path / "a", waiting)
        assert (tmp_path / "a").read_bytes() == CONTENT
        (tmp_path / "a").unlink()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_download_that_was_ended_goes_on(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, end: signal.Signals
) -> None:
    publisher.script = [Answer(cut_after=120_000, hold=True)]
    code = f"""
        from pathlib import Path
        from resources.download import download
        from resources.patience import Patience
        from resources.remote import look
        wanted = look({publisher.url + PATH!r}, Patience(), print)
        download(wanted, Path({str(tmp_path / "a")!r}), md5=None, report=print, patience=Patience())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with ending(subprocess.Popen(command, cwd=ROOT)) as process:
        assert publisher.held.wait(60)
        wait_for_bytes(part_of(tmp_path / "a"), 120_000)
        process.send_signal(end)
        assert process.wait(60) != 0
    done = fetch(publisher, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert done.received_bytes == len(CONTENT) - 120_000
    assert publisher.gets()[-1] == "bytes=120000-"


def wait_for_bytes(path: Path, size: int) -> None:
    """Until the other process has written what the server has sent."""
    deadline_s = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < deadline_s, f"{path} did not reach {size} bytes"
        os.sched_yield()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_goes_wrong_the_file_is_right_or_not_there(
    publisher: Publisher, tmp_path: Path, waiting: Waiting, seed: int
) -> None:
    chance = random.Random(seed)

    def fault() -> Answer:
        kind = chance.randrange(6)
        cut = chance.randrange(len(CONTENT))
        if kind == 0:
            return Answer(status=chance.choice([429, 500, 503]))
        if kind == 1:
            return Answer(cut_after=cut, ignore_range=True)
        if kind == 2:
            return Answer(etag='"other"', content=chance.randbytes(cut + 1))
        if kind == 3:
            return Answer(promised=cut + 1)
        return Answer(cut_after=cut)

    for _ in range(6):
        publisher.script = [fault() for _ in range(chance.randrange(1, 6))]
        try:
            fetch(publisher, tmp_path / "a", waiting)
        except DownloadError:
            assert not (tmp_path / "a").exists()
            part = part_of(tmp_path / "a")
            assert not part.exists() or CONTENT.startswith(part.read_bytes())
        else:
            assert (tmp_path / "a").read_bytes() == CONTENT
            (tmp_path / "a").unlink()
    publisher.script = []
    fetch(publisher, tmp_path / "a", waiting)
    assert (tmp_path / "a").read_bytes() == CONTENT
