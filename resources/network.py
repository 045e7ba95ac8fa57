"""How this machine reaches servers: its client, and the settings that the client obeys."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx

from resources.errors import DownloadError

if TYPE_CHECKING:
    from collections.abc import Generator

    from resources.patience import Patience

_SETTINGS = [
    *(
        cased
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        for cased in (name, name.lower())
    ),
    *("NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC"),
]
# The file's own bytes: compressed on the way, they could not be gone on with in the middle.
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "speech-assets"}


def open_client(patience: Patience) -> httpx.Client:
    """A client that follows redirects, to be closed by the caller.

    Raises:
        DownloadError: the settings of this machine's network cannot be used.
    """
    timeout = httpx.Timeout(patience.read_s, connect=patience.connect_s)
    with network_settings():
        return httpx.Client(
            headers=_HEADERS, timeout=timeout, follow_redirects=True, auth=_netrc_auth()
        )


def _netrc_auth() -> httpx.NetRCAuth | None:
    """Users and passwords of servers by `NETRC`, else ~/.netrc; None when there is no such file."""
    file = os.environ.get("NETRC")
    try:
        return httpx.NetRCAuth(file)
    except FileNotFoundError:
        if file:
            raise
        return None


def refuse_password(url: str, remedy: str) -> None:
    """Refuse an address with a user or password in it: it stands in the store and in messages.

    Raises:
        DownloadError: `remedy` says where else to put them.
    """
    plain = re.sub(r"(?<=//)[^/?#]*@", "", url)
    if plain != url:
        raise DownloadError(
            f"{plain}: the address that was given has a user or password in it, which would stand "
            f"in the store and in every message; {remedy}"
        )


@contextmanager
def network_settings() -> Generator[None]:
    """Around the making of a client: whatever fails there is a setting of this machine.

    Raises:
        DownloadError: it names the variables that are set, but not their values: a proxy's may
            hold a password.
    """
    try:
        yield
    except Exception as error:
        is_set = [name for name in _SETTINGS if os.environ.get(name)]
        raise DownloadError(
            f"the network's settings cannot be used: {error}; correct what it names: a file "
            f"~/.netrc, or a variable of the environment (set: {', '.join(is_set) or 'none'})"
        ) from error
