"""What a server said, made fit to be printed and kept: plain words, and JSON that is valid."""

from __future__ import annotations

import math
from typing import Any, cast

# Deeper than any configuration; what nests a thousand times ends whoever walks through it.
DEEPEST = 50


def plain_words(text: str) -> str:
    """`text` with a space for whatever cannot be printed: controls, and halves of characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def plain_json(value: object, deepest: int = DEEPEST) -> Any:
    """`value` with null for each number that JSON does not know (NaN, infinity).

    Raises:
        ValueError: it nests deeper than `deepest`.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, dict | list | tuple):
        return value
    if not deepest:
        raise ValueError("JSON that nests too deep")
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {name: plain_json(one, deepest - 1) for name, one in items}
    return [plain_json(one, deepest - 1) for one in cast("list[object]", value)]
