"""The file of assumptions, `assumptions.toml`."""

from __future__ import annotations

import json
import reprlib
import tomllib
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from speech_assets.errors import ConfigError
from speech_assets.scaling.assumptions import Assumptions

TABLE = Path(__file__).parent / "assumptions.toml"
_FORM = TypeAdapter(Assumptions)


def load_assumptions(table: Path = TABLE) -> Assumptions:
    """The assumptions in a TOML file.

    Raises:
        ConfigError: a value is missing, unknown or not what it must be.
    """
    try:
        tables = tomllib.loads(table.read_text(encoding="utf-8"))
        # Through JSON, so that strict types still take a list for a tuple.
        text = json.dumps(tables, allow_nan=False)
    except OSError as error:
        raise ConfigError(f"{table}: {error.strerror}; give a TOML file of assumptions") from error
    except (ValueError, TypeError, RecursionError) as error:  # TypeError: a day without quotes.
        raise ConfigError(f"{table} cannot be read: {error}; correct the file") from error
    try:
        return _FORM.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        if first["type"] == "missing":
            raise ConfigError(f"{table}: {place} is missing; the file must have it") from error
        if first["type"] == "unexpected_keyword_argument":
            raise ConfigError(f"{table}: {place} is not a setting; remove it") from error
        why = first["msg"].removeprefix("Value error, ")
        shown = reprlib.repr(first["input"])
        raise ConfigError(f"{table}: {place} is {shown}: {why}; correct it") from error
