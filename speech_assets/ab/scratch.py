"""Temporary folders of comparisons, and the removal of those that killed ones left."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from resources.process import is_gone, process_name

if TYPE_CHECKING:
    from collections.abc import Generator

_PREFIX = "speech-assets-ab-"


@contextlib.contextmanager
def scratch_folder() -> Generator[Path]:
    """An empty folder until the block ends; those of ended processes of this machine are removed.

    Its name says whose it is, as only a process that is killed leaves its own.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if is_gone(left.name.removeprefix(_PREFIX).rpartition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{process_name()}-") as folder:
        yield Path(folder)
