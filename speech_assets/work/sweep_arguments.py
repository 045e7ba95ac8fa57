"""The options of a sweep that load tests and ladders have in common."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from server.presets import VARIABLE
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.results.provenance import place_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from speech_assets.load.sweep import SweepOptions


_VALUED = ("--levels", "--seeds", "--loads", "--duration-s", "--warmup-s", "--lag-limit-ms")


def add_sweep_arguments(
    parser: argparse.ArgumentParser,
    *,
    usual: str,
    duration_s: float | None = None,
    warmup_s: float | None = None,
) -> None:
    """Add them. `usual` says whose levels and times are taken where none are given."""
    add = parser.add_argument
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--levels", default="", help=f"streams at once, as 1,2,4; empty is the {usual}'s")
    add("--seeds", default="1", help="each level is measured with every one, as 1,2,3")
    of_whom = "" if duration_s else f"; the {usual}'s unless given"
    add("--duration-s", type=float, default=duration_s, help=f"measured at each level{of_whom}")
    add("--warmup-s", type=float, default=warmup_s, help=f"of load before that{of_whom}")
    add("--lag-limit-ms", type=float, default=5.0, help="the client may be so late (p99)")
    add("--allow-client-limit", action="store_true", help="keep figures when it was later")


def argument_words(words: Sequence[str]) -> list[str]:
    """The words of a command, each list or number joined to its option by `=`.

    Left apart, argparse takes one that begins with a minus for another option, and does not say
    what is wrong with it.
    """
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in _VALUED and not word.startswith("--"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def sweep_words(options: SweepOptions, arguments: argparse.Namespace) -> Sequence[str]:
    """The words of a command that ask for the same sweep."""
    return [
        *("--levels", ",".join(f"{level:g}" for level in options.levels)),
        *("--seeds", ",".join(map(str, options.seeds))),
        *("--duration-s", f"{options.duration_s:g}", "--warmup-s", f"{options.warmup_s:g}"),
        *("--lag-limit-ms", f"{options.lag_limit_ms:g}"),
        *(["--allow-client-limit"] if arguments.allow_client_limit else []),
    ]


def with_presets(command: str) -> str:
    """The command with the user's file of presets before it, where there is one."""
    user = os.environ.get(VARIABLE, "")
    return f"{VARIABLE}={shlex.quote(place_of(user))} {command}" if user else command


def client_limit_message(faults: Sequence[str], levels: int, path: str) -> str:
    """Why figures are void, and what to do."""
    return (
        f"the client was the limit at {len(faults)} of {levels} levels, so that the figures are "
        f"not the server's ({faults[0]}); run it on a quieter machine, or allow it: "
        f"--allow-client-limit, in the asset's config allow_client_limit. Kept as {path}"
    )
