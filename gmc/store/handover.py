"""A folder through which processes of one machine hand weights to each other: in memory where there is room, else on disk."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gmc.store.files import disk_errors
from gmc.store.temporary import remove_leftovers, temporary_name

MEMORY = Path("/dev/shm")


def has_room(folder: Path, needed: int) -> bool:
    """Whether the file system of `folder` has room for `needed` bytes and a tenth more."""
    if not folder.is_dir():
        return False
    statistics = os.statvfs(folder)
    return statistics.f_bavail * statistics.f_frsize > 1.1 * needed


@contextlib.contextmanager
def handover_folder(fallback: Path, needed: int) -> Iterator[Path]:
    """An empty folder with room for `needed` bytes, removed in the end; in `fallback` where memory has no room for them.

    What a killed process left is removed by the next one, since the folder has a temporary name.
    """
    base = MEMORY / f"gmc-{os.getuid()}" if has_room(MEMORY, needed) else fallback
    folder = temporary_name(base / "handover")
    with disk_errors(folder):
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_leftovers(base)
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
