"""A few of many, evenly spread, so that few are of every kind, too."""

from __future__ import annotations

from speech_assets.errors import ConfigError


def spread(count: int, of: int) -> list[int]:
    """`count` of the numbers 0 to `of` - 1, evenly spread.

    Raises:
        ConfigError: there are not as many.
    """
    if not 1 <= count <= of:
        raise ConfigError(f"{count} are asked for, of {of} there are; ask for 1 to {of}")
    return [n * of // count for n in range(count)]
