"""Whether the disks have room for what is to be written, asked before it begins."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from resources.errors import DownloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# Raw PCM is larger than gzip makes it: train-clean-100 is 8.13 GB as tar.gz (libritts_r.toml) and
# 9.24 GB as parquet that keeps WAV as it is (card of gruhit-patel/libritts_r_train33k on the hub):
# 1.14 times as much, and some to spare.
UNPACKED_PER_PACKED = 1.25


def free_bytes(folder: Path) -> int:
    """Bytes that this user may write on the disk of `folder`."""
    return shutil.disk_usage(folder).free


def check_room(
    needed: Mapping[Path, float],
    what: str,
    free: Callable[[Path], int] = free_bytes,
    *,
    remedy: str = "set the corpus' path and SPEECH_STORE to larger disks",
) -> None:
    """Refuse what the disks cannot hold; folders on one disk are added up.

    Raises:
        DownloadError: there is too little, with both numbers.
    """
    by_disk: dict[int, tuple[Path, float]] = {}
    for folder, size in needed.items():
        folder.mkdir(parents=True, exist_ok=True)
        disk = folder.stat().st_dev
        first, sum_ = by_disk.get(disk, (folder, 0.0))
        by_disk[disk] = (first, sum_ + size)
    for folder, size in by_disk.values():
        if (left := free(folder)) < size:
            raise DownloadError(
                f"{what} needs {size / 1e9:.2f} GB on the disk of {folder}, {left / 1e9:.2f} GB are"
                f" free; free space, or {remedy}"
            )
