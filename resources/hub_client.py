"""How the hub's client is asked: patiently, by plain HTTP, with its errors as this project's."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

from resources.errors import DownloadError
from resources.network import network_settings, refuse_password
from resources.remote import (
    PASSING_STATUS,
    PassingError,
    pause,
    refuse_no_http,
    refuse_tls,
    retry_after_s,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from resources.patience import Patience

_DISABLE_XET = "HF_HUB_DISABLE_XET"
_PLAIN_HTTP = threading.Lock()

ResultT = TypeVar("ResultT")


def patiently(
    place: str,
    patience: Patience,
    report: Callable[[str], None],
    ask: Callable[[], ResultT],
    folder: Path | None = None,
) -> ResultT:
    """What `ask` gets from the hub at `place`, tried again while it fails in passing.

    Raises:
        DownloadError: the hub refuses, is none, or could not be reached; or `folder`, where the
            client writes, cannot be written.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        raise DownloadError(f"{place}: HF_HUB_OFFLINE is set, so nothing is fetched; unset it")
    refuse_password(place, "give the hub's token as HF_TOKEN")
    with network_settings():
        get_session()
    failures = 0
    while True:
        try:
            with _hub_errors(place, folder):
                return ask()
        except PassingError as error:
            failures += 1
            pause(patience, failures, error, place, report)


@contextlib.contextmanager
def plain_http() -> Generator[None]:
    """The hub's client without Xet, also where HF_HUB_DISABLE_XET was not set before its import.

    Xet takes its content from addresses that the hub names, tries again for minutes by rules of
    its own, and its errors say neither whether they pass nor what to do.
    """
    from huggingface_hub import constants

    with _PLAIN_HTTP:
        before = constants.HF_HUB_DISABLE_XET
        setattr(constants, _DISABLE_XET, True)
        try:
            yield
        finally:
            setattr(constants, _DISABLE_XET, before)


@contextlib.contextmanager
def _hub_errors(place: str, folder: Path | None) -> Generator[None]:
    """The hub client's errors as this project's; `folder` is where it writes.

    Raises:
        PassingError: it could not be reached, was asked too often, or sent less than it promised.
        DownloadError: it refuses, is no hub, or its files cannot be written.
    """
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except LocalEntryNotFoundError as error:
        refuse_tls(error, place)
        raise PassingError(f"{place}: the hub could not be reached") from error
    except GatedRepoError as error:
        raise DownloadError(
            f"{place}: access is gated; accept its terms with your account and set HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise DownloadError(f"{place}: no such revision; check the catalogue") from error
    except RepositoryNotFoundError as error:
        raise DownloadError(
            f"{place}: no such data set, or a private one that HF_TOKEN does not open; check "
            "the catalogue"
        ) from error
    except EntryNotFoundError as error:
        raise DownloadError(f"{place}: not there: {_first_line(error)}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        said = f"{place}: the hub answers {status}"
        if status in PASSING_STATUS:
            asked_s = retry_after_s(error.response.headers.get("Retry-After"))
            raise PassingError(said, asked_s) from error
        raise DownloadError(f"{said}: {_first_line(error)}") from error
    except HFValidationError as error:
        raise DownloadError(
            f"{place}: {_first_line(error)}; give the repository as OWNER/NAME in the catalogue"
        ) from error
    except UnicodeError as error:
        raise DownloadError(
            f"{place}: no host can have such a name, here or where it is redirected to: "
            f"{error}; check the address"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DownloadError(
            f"{place}: the answer is none of a hub: {type(error).__name__}: "
            f"{_first_line(error)}; check the address, and whether something between asks for a "
            "login"
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise DownloadError(
                f"{place}: {error.strerror} ({error.filename or folder}); free space or "
                "check the folder, whole files are kept"
            ) from error
        raise PassingError(f"{place}: {_first_line(error)}") from error  # Of another size.
    except Exception as error:
        # The client speaks through httpx or its successor, whichever its version has.
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2"):
            raise
        refuse_tls(error, place)
        refuse_no_http(error, place)
        raise PassingError(f"{place}: the connection failed: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
