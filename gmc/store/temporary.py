"""Temporary names: what no reader takes, and how the next command knows that its writer is gone."""

import functools
import hashlib
import logging
import os
import re
import secrets
import shutil
import socket
import stat
import time
from pathlib import Path

log = logging.getLogger(__name__)

TEMPORARY_PREFIX = ".tmp-"
FOREIGN_LEFTOVER_SECONDS = 24 * 3600
_ANY_NAME = r".*-[^-]+-\d+-[0-9a-f]{8}-[0-9a-f]{8}"
_OWN_NAME = r".*-{host}-(\d+)-([0-9a-f]{{8}})-[0-9a-f]{{8}}"


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no reader takes and no other process picks; it tells its host and process.

    A process is named by its number and by when it started, since numbers come again: in a container the trainer is
    process 1 each time. What killed writers left in that folder is removed first, once a process: every writer comes here.
    """
    _sweep(path.parent.absolute())
    process = os.getpid()
    mark = f"{_host()}-{process}-{_birth(process)}-{secrets.token_hex(4)}"
    return path.parent / f"{TEMPORARY_PREFIX}{path.name}-{mark}"


@functools.cache
def _sweep(directory: Path) -> None:
    """Remove what dead writers of gmc left in a folder that may be anybody's: nothing whose name says otherwise."""
    for path in sorted(directory.glob(f"{TEMPORARY_PREFIX}*")):
        if re.fullmatch(_ANY_NAME, path.name) and _is_left_over(path):
            remove(path)


def _host() -> str:
    return socket.gethostname().replace("-", "_").replace("/", "_")


def _birth(process: int) -> str:
    """Eight hex digits that tell this life of a process number from another; zeros where the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
        life = f"{_boot()}/{fields[19]}"  # field 22 of proc(5): the start, in ticks since boot
    except (OSError, IndexError):
        return "00000000"
    return hashlib.blake2b(life.encode(), digest_size=4).hexdigest()


@functools.cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()


def remove_leftovers(directory: Path) -> list[Path]:
    """Remove what dead writers left under temporary names in `directory`; returns what was removed.

    A writer that still lives keeps its file. Any other name, such as one of another host, whose processes cannot be seen
    from here, is removed when it is a day old. What cannot be removed is named in a warning and stays.
    """
    return [path for path in sorted(directory.glob(f"{TEMPORARY_PREFIX}*")) if _is_left_over(path) and remove(path)]


def _is_left_over(path: Path) -> bool:
    own = re.fullmatch(_OWN_NAME.format(host=re.escape(_host())), path.name)
    if own:
        return not (_is_alive(int(own[1])) and _birth(int(own[1])) == own[2])
    try:
        return time.time() - path.lstat().st_mtime > FOREIGN_LEFTOVER_SECONDS
    except FileNotFoundError:
        return False  # its writer has just finished


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def remove(path: Path) -> bool:
    """Remove a file, a link or a folder that no reader takes; False, with a warning, when the system refuses.

    A folder may refuse for a while: NFS keeps a `.nfs…` file in it as long as another machine has it open.
    """
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("%s: cannot be removed now (%s); the next command tries again", path, error.strerror)
        return False
    return True
