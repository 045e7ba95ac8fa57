"""The address of a server: where it is asked, and how it is shown without its secrets."""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from speech_assets.bench.errors import BenchError
from speech_assets.bench.plain import plain_words

_LISTENS_WITHIN_S = 5.0
_SPEECH_PATH = "/v1/audio/speech"
_SCHEMES = {"http": ("http", "ws"), "https": ("https", "wss"), "ws": ("http", "ws")}
_SCHEMES["wss"] = _SCHEMES["https"]
_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
# Of text that need not be an address: whatever stands where a password or a key would.
_USER = re.compile(r"(?<=//)[^/@?#]*(?:@[^/@?#]*)*@")
_QUERY = re.compile(r"\?\S*")


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address in its parts.

    `root` is the path before `/v1`; `query` goes with every request; `authorization` is the header
    that user and password make, None without them.
    """

    scheme: str
    place: str  # Host and port.
    root: str
    query: str
    authorization: str | None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read what people paste: the root, the API's root, or the whole route.

        Raises:
            BenchError: it is no address.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
            is_fine = (
                parts.scheme in _SCHEMES
                and port != 0
                # urlsplit drops tabs and newlines without a word.
                and not any(one.isspace() or not one.isprintable() for one in url)
                and _is_host(host)
            )
        except ValueError:  # A port that is no number, a bracket too many, a host that IDNA lacks.
            parts, is_fine = SplitResult("", "", "", "", ""), False
        if not is_fine:
            raise BenchError(f"--url {shown(url)!r} is no address; write it as http://host:port")
        root = parts.path.rstrip("/")
        for end in (f"{_SPEECH_PATH}/stream", _SPEECH_PATH, "/v1"):
            root = root.removesuffix(end)
        user, at, place = parts.netloc.rpartition("@")
        name, _, password = user.partition(":")
        words = f"{unquote(name)}:{unquote(password)}".encode()
        return cls(
            parts.scheme,
            place,
            root,
            parts.query,
            f"Basic {base64.b64encode(words).decode()}" if at else None,
        )

    @property
    def base(self) -> str:
        """The server's root over HTTP, without a slash at its end and without the query."""
        return self._url("http", "", "")

    def speech(self, api: Literal["openai", "ws"]) -> str:
        """Where speech is asked for, the query included."""
        if api == "ws":
            return self._url("ws", f"{_SPEECH_PATH}/stream", self.query)
        return self._url("http", _SPEECH_PATH, self.query)

    def check_listening(self) -> None:
        """Nothing, if somebody listens there, or whether anybody does is not known.

        Raises:
            BenchError: the connection is refused, or there is no such host.
        """
        parts = urlsplit(self.base)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((host, port), _LISTENS_WITHIN_S).close()
        except (ConnectionRefusedError, socket.gaierror) as error:
            raise BenchError(
                f"nobody listens at {parts.scheme}://{self.place} ({error.strerror or error}): is "
                "the server running? Start it first (this project's: make serve, in another "
                "terminal), or correct --url"
            ) from error
        except OSError:
            return  # The run tells what becomes of its requests.

    def _url(self, scheme: Literal["http", "ws"], path: str, query: str) -> str:
        chosen = _SCHEMES[self.scheme][scheme == "ws"]
        return urlunsplit((chosen, self.place, self.root + path, query, ""))


def shown(url: str) -> str:
    """`url`, or words that have one, without user, password and query: they may be secrets."""
    return plain_words(_QUERY.sub("?...", _USER.sub("...@", url)))


def _is_host(host: str) -> bool:
    if ":" in host:
        return ipaddress.ip_address(host).version == 6
    return bool(_HOST.fullmatch(host.encode("idna").decode()))
