"""Cores that the project may use on this machine."""

from __future__ import annotations

import os

from speech_assets.errors import ConfigError


def core_count() -> int:
    """What `SPEECH_THREADS` says, else all cores of this machine.

    Raises:
        ConfigError: `SPEECH_THREADS` is not a whole number above zero.
    """
    text = os.environ.get("SPEECH_THREADS", "")
    if not text:
        return os.cpu_count() or 1
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"SPEECH_THREADS is {text!r}; set it to a number of cores, or unset it")
    return int(text)
