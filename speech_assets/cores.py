"""Cores that the project may use on this machine, and how many devices they make."""

from __future__ import annotations

import os

from speech_assets.errors import ConfigError


def core_count() -> int:
    """What `SPEECH_THREADS` says, else all cores that this process may run on.

    Raises:
        ConfigError: `SPEECH_THREADS` is not a whole number above zero.
    """
    return _number("SPEECH_THREADS", "cores", len(os.sched_getaffinity(0)))


def cpu_device_count() -> int:
    """How many devices the CPU is taken for: what `SPEECH_CPU_DEVICES` says, else one.

    Raises:
        ConfigError: `SPEECH_CPU_DEVICES` is not a whole number above zero.
    """
    return _number("SPEECH_CPU_DEVICES", "devices", 1)


def _number(variable: str, of: str, default: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{variable} is {text!r}; set it to a number of {of}, or unset it")
    return int(text)
