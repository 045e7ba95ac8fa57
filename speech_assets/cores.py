"""Cores that the project may use on this machine, and how many devices they make."""

from __future__ import annotations

import os
import reprlib

from speech_assets.errors import ConfigError

MOST_CPU_DEVICES = 1_024  # Each is a lock that is tried; no machine shares its cores by more.
_MOST_CORES = 4_096  # Of the largest machines.


def core_count() -> int:
    """What `SPEECH_THREADS` says, else all cores that this process may run on.

    Raises:
        ConfigError: `SPEECH_THREADS` is not a whole number from 1 to 4,096.
    """
    return _number("SPEECH_THREADS", "cores", len(os.sched_getaffinity(0)), _MOST_CORES)


def cpu_device_count() -> int:
    """How many devices the CPU is taken for: what `SPEECH_CPU_DEVICES` says, else one.

    Raises:
        ConfigError: `SPEECH_CPU_DEVICES` is not a whole number from 1 to 1,024.
    """
    return _number("SPEECH_CPU_DEVICES", "devices", 1, MOST_CPU_DEVICES)


def _number(variable: str, of: str, default: int, most: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    # By its length first: of thousands of digits Python makes no number.
    if text.isdecimal() and len(text) <= len(str(most)) and 1 <= int(text) <= most:
        return int(text)
    raise ConfigError(
        f"{variable} is {reprlib.repr(text)}; set it to a number of {of} from 1 to {most:,}, or "
        "unset it"
    )
