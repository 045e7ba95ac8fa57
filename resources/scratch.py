"""Temporary folders of this process, and the removal of those that killed ones left."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from resources.process import is_gone, process_name

if TYPE_CHECKING:
    from collections.abc import Generator

_PREFIX = "speech-assets-"


@contextlib.contextmanager
def scratch_folder(purpose: str) -> Generator[Path]:
    """An empty folder `speech-assets-PURPOSE-...` until the block ends.

    Its name says whose it is, as only a process that is killed leaves its own: those of this
    purpose whose process of this machine has ended are removed first.
    """
    prefix = f"{_PREFIX}{purpose}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if is_gone(left.name.removeprefix(prefix).rpartition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{process_name()}-") as folder:
        yield Path(folder)
