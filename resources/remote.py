"""What a server says of a file, and what its refusals mean."""

from __future__ import annotations

import email.utils
import re
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from resources.errors import DownloadError
from resources.network import open_client, refuse_password
from resources.patience import LONGEST_ASKED_S, Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

# What can pass: a request too slow or too many, a server that restarts.
PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
# What a handshake says when the two sides will never agree, or the other does not speak TLS.
_NO_COMMON_TLS = {
    *("HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "WRONG_VERSION_NUMBER"),
    *("NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"),
    *("NO_CIPHERS_AVAILABLE", "NO_SHARED_CIPHER", "SSLV3_ALERT_HANDSHAKE_FAILURE"),
    *("DH_KEY_TOO_SMALL", "UNSAFE_LEGACY_RENEGOTIATION_DISABLED", "TLSV1_UNRECOGNIZED_NAME"),
    *("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA"),
}


_CLOSED = ("Server disconnected", "peer closed connection")  # As httpcore and h11 word it.
_NO_HTTP_ATTEMPTS = 2
_LONGEST_SAID = 160  # Of an answer: h11 repeats a whole line of it.
_LONGEST_TOLD_S = 2 * 86_400.0

DIGITS = r"[0-9]{1,18}"
"""A number of bytes in a header; a longer one is nobody's, and Python does not even read it."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file at `url` as its server describes it; what it does not say is None.

    `etag` is kept only when strong, as a weak one does not mean the same bytes.
    """

    url: str
    size_bytes: int | None = None
    etag: str | None = None
    last_modified: str | None = None

    @property
    def validator(self) -> str | None:
        """What tells this very content apart, for If-Range."""
        return self.etag or self.last_modified


class PassingError(Exception):
    """A failure that may pass. `asked_s` is how long the server asks to be left alone."""

    def __init__(self, message: str, asked_s: float | None = None) -> None:
        super().__init__(message)
        self.asked_s = asked_s


class NoHttpError(PassingError):
    """What came is no HTTP: damage on the way may pass, a server that speaks otherwise does not."""


def look(url: str, patience: Patience, report: Callable[[str], None]) -> RemoteFile:
    """What the server says of the file at `url`, by HEAD.

    Raises:
        DownloadError: it does not have it, or cannot be reached after every attempt.
    """
    refuse_password(url, "put them into ~/.netrc: machine HOST login USER password PASSWORD")
    with open_client(patience) as client:
        failures = 0
        while True:
            try:
                with passing(url):
                    response = client.head(url)
                    refuse(response, url)
                return described(response, url)
            except PassingError as error:
                failures += 1
                pause(patience, failures, error, url, report)


def described(response: httpx.Response, url: str) -> RemoteFile:
    """What the headers of an answer say of the whole file."""
    etag = _sendable(response.headers.get("ETag"))
    length = response.headers.get("Content-Length", "")
    return RemoteFile(
        url=url,
        size_bytes=int(length) if re.fullmatch(DIGITS, length) else None,
        etag=None if etag is not None and etag.startswith("W/") else etag,
        last_modified=_sendable(response.headers.get("Last-Modified")),
    )


def _sendable(value: str | None) -> str | None:
    """A header's value that can be sent back, as If-Range is; None for any other."""
    return value if value and value.isascii() else None


def refuse(response: httpx.Response, url: str) -> None:
    """Raise for an answer without the file; 416 is left to who asked for a range.

    Raises:
        PassingError, DownloadError: by whether trying again can help.
    """
    status = response.status_code
    if status in (200, 206, 416):
        return
    said = f"{url}: the server answers {status} {response.reason_phrase}".rstrip()
    if status in PASSING_STATUS:
        raise PassingError(said, retry_after_s(response.headers.get("Retry-After")))
    if status in (404, 410):
        raise DownloadError(f"{said}: no such file there; check url and the catalogue")
    if status in (401, 403):
        raise DownloadError(f"{said}: access is refused; check url, proxy and permissions")
    raise DownloadError(f"{said}; check url, or take another mirror")


@contextmanager
def passing(url: str) -> Generator[None]:
    """httpx's errors as this project's.

    Raises:
        PassingError: the connection failed, broke or stalled.
        NoHttpError: the answer is none of HTTP.
        DownloadError: the address or its certificate cannot work.
    """
    try:
        yield
    except httpx.TransportError as error:
        refuse_tls(error, url)
        refuse_no_http(error, url)
        if isinstance(error, httpx.UnsupportedProtocol):
            raise DownloadError(
                f"{url}: {error} ({error.request.url}); give an http:// or https:// address, or "
                "take another mirror"
            ) from error
        raise PassingError(f"{url}: {_in_words(error)}") from error
    except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise DownloadError(f"{url}: {error}; check url") from error
    except UnicodeError as error:  # Of the encoding that names of hosts have.
        raise DownloadError(
            f"{url}: no host can have such a name, here or where it is redirected to: {error}; "
            "check url"
        ) from error


def pause(
    patience: Patience,
    failures: int,
    error: PassingError,
    url: str,
    report: Callable[[str], None],
) -> None:
    """Wait before the next attempt.

    Raises:
        DownloadError: none is left, or the server asks for more than is waited.
    """
    if isinstance(error, NoHttpError) and failures >= min(_NO_HTTP_ATTEMPTS, patience.attempts):
        raise DownloadError(
            f"{error}; so it was {failures} times: take another mirror, or check url and whether a "
            "proxy stands between; what was received is kept"
        ) from error
    if failures >= patience.attempts:
        raise DownloadError(
            f"{error}; gave up after {failures} attempts without progress; check the network and "
            "run again, what was received is kept",
            retryable=True,
        ) from error
    if error.asked_s is not None and error.asked_s > LONGEST_ASKED_S:
        raise DownloadError(
            f"{error} and asks to come back after {_wait_in_words(error.asked_s)}; run again then, "
            "or take another mirror; what was received is kept"
        ) from error
    wait_s = patience.wait_s(failures, error.asked_s)
    report(f"{error}; attempt {failures + 1} of {patience.attempts} in {wait_s:.0f} s")
    patience.sleep(wait_s)


def _wait_in_words(seconds: float) -> str:
    """How long to wait; of more than two days no number, as the year 9999 is a date, too."""
    return f"{seconds:.0f} s" if seconds <= _LONGEST_TOLD_S else "more than two days"


def refuse_no_http(error: Exception, place: str) -> None:
    """Raise when an error, of httpx or its successor, came from an answer that is none of HTTP.

    Raises:
        NoHttpError: it did; the message has what came, cut short.
    """
    said = str(error)
    # A server that closes the connection, before or within an answer, is the same error.
    if type(error).__name__ == "RemoteProtocolError" and not said.startswith(_CLOSED):
        if len(said) > _LONGEST_SAID:
            said = f"{said[:_LONGEST_SAID]}..."
        raise NoHttpError(f"{place}: the answer is no HTTP ({said})") from error


def _in_words(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpx.TimeoutException):
        return "the server went silent"
    if isinstance(error, httpx.ConnectError):
        return f"no connection: {error}"
    return f"the connection broke: {error}"


def refuse_tls(error: BaseException, place: str) -> None:
    """Raise when an error came from what TLS has against a server for good.

    A connection that is cut or damaged is an `SSLError` too, but passes as any other that breaks.

    Raises:
        DownloadError: the certificate does not hold, or the two sides will never agree.
    """
    reason, connecting = None, False
    cause: BaseException | None = error
    while cause is not None:
        # By name: the hub's client has another httpx than this project.
        connecting = connecting or type(cause).__name__ == "ConnectError"
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message
        elif isinstance(cause, ssl.SSLError) and connecting and cause.reason in _NO_COMMON_TLS:
            reason = cause.reason
        cause = cause.__cause__ or cause.__context__
    if reason is not None:
        raise DownloadError(
            f"{place}: TLS failed: {reason}; check the clock, the certificates of this machine "
            "(SSL_CERT_FILE) and whether a proxy stands between"
        ) from error


def retry_after_s(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
