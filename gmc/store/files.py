"""Durable files: whatever a reader can see under its final name is complete and on the disk.

Every file is written under a temporary name in its own folder, flushed, renamed, and the folder is flushed after it.
A folder is filled under a temporary name too, and its `READY` marker is written after everything else is on the disk.
A crash leaves at most a name that starts with `TEMPORARY_PREFIX` or a folder without the marker, which no reader takes.
"""

import contextlib
import errno
import json
import math
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gmc.errors import DataError, GmcError

TEMPORARY_PREFIX = ".tmp-"
READY = "READY"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FOREIGN_LEFTOVER_SECONDS = 24 * 3600


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk into one `GmcError` that names `path`; every other error passes through."""
    try:
        yield
    except Exception as error:
        if (number := _disk_full(error)) is None:
            raise
        raise GmcError(
            f"{path}: cannot write, the disk is full or a quota is reached ({os.strerror(number)}). "
            "Free some space and run the command again (gmc train with --resume)."
        ) from error


def _disk_full(error: BaseException) -> int | None:
    """The number of the operating system's error when it says that the disk is full, else None.

    Libraries written in Rust report that number only in their text. A full disk met while filling a temporary folder comes
    here as the cause of a `GmcError`, which then names the folder's final name.
    """
    if isinstance(error, GmcError) and error.__cause__ is not None:
        return _disk_full(error.__cause__)
    for number in DISK_FULL:
        if (isinstance(error, OSError) and error.errno == number) or f"os error {number}" in str(error):
            return number
    return None


def fsync_directory(directory: Path) -> None:
    """Flush a directory's own entries (a rename is durable only after this)."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make a folder and those above it, each durable in the one that holds it: what lies in a lost folder is lost."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        fsync_directory(folder.parent)


def fsync_file(path: Path) -> None:
    """Flush the contents of a closed file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no reader takes and no other process picks; it tells its host and process."""
    return path.parent / f"{TEMPORARY_PREFIX}{path.name}-{_host()}-{os.getpid()}-{secrets.token_hex(4)}"


def _host() -> str:
    return socket.gethostname().replace("-", "_").replace("/", "_")


def remove_leftovers(directory: Path) -> list[Path]:
    """Remove what dead writers left under temporary names in `directory`; returns what was removed.

    A writer that still lives keeps its file. Any other name, such as one of another host, whose processes cannot be seen
    from here, is removed when it is a day old.
    """
    removed = []
    for path in sorted(directory.glob(f"{TEMPORARY_PREFIX}*")):
        own = re.fullmatch(rf".*-{re.escape(_host())}-(\d+)-[0-9a-f]{{8}}", path.name)
        dead = not _is_alive(int(own[1])) if own else time.time() - path.lstat().st_mtime > FOREIGN_LEFTOVER_SECONDS
        if dead:
            _remove(path)
            removed.append(path)
    return removed


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary file name to write to; on success flush it and rename it to `path`, on error remove it."""
    temporary = temporary_name(path)
    with disk_errors(path):
        make_directory(path.parent)
        try:
            yield temporary
            fsync_file(temporary)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)


@contextlib.contextmanager
def ready_directory(path: Path) -> Iterator[Path]:
    """Give an empty temporary folder to fill; on success flush all of it, rename it to `path` and write `READY` last.

    An earlier folder of this name is withdrawn only when the new one is durable. On error nothing of the new one remains.
    """
    temporary = temporary_name(path)
    with disk_errors(path):
        make_directory(path.parent)
        try:
            temporary.mkdir()
            yield temporary
            _fsync_tree(temporary)
            withdraw_directory(path)
            os.replace(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync_directory(path.parent)
        write_text(path / READY, "complete\n")


def _fsync_tree(directory: Path) -> None:
    for parent, _, names in os.walk(directory):
        for name in names:
            fsync_file(Path(parent, name))
        fsync_directory(Path(parent))


def is_ready(directory: Path) -> bool:
    """Whether a folder is complete and durable: its marker exists."""
    return (directory / READY).is_file()


def withdraw_directory(path: Path) -> None:
    """Remove a published folder, if there is one, so that no reader ever sees half of it: the marker goes first."""
    if not path.exists():
        return
    (path / READY).unlink(missing_ok=True)
    fsync_directory(path)
    doomed = temporary_name(path)
    os.replace(path, doomed)
    fsync_directory(path.parent)
    shutil.rmtree(doomed)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a whole file atomically and durably."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole UTF-8 text file atomically and durably."""
    write_bytes(path, content.encode("utf-8"))


def strict_json(value: Any) -> str:
    """One line of strict JSON: a non-finite number becomes null (JSON has no NaN); unknown types are an error."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def write_json(path: Path, value: Any) -> None:
    """Write one strict-JSON object atomically and durably."""
    write_text(path, strict_json(value) + "\n")


def read_json(path: Path) -> Any:
    """Read one JSON file; raises `DataError` naming the file when it is missing or damaged."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error


def append_jsonl(path: Path, record: dict[str, Any]) -> None:
    """Append one strict-JSON line to a log. Not durable by itself: the checkpoint's frontier is what counts."""
    with disk_errors(path), open(path, "a", encoding="utf-8") as file:
        file.write(strict_json(record) + "\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read one of gmc's own logs. A last line cut by a crash is left out; damage elsewhere raises `DataError`."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    complete, _, _ = raw.rpartition(b"\n")
    records = []
    for number, line in enumerate(complete.split(b"\n"), start=1):
        if not line:
            continue
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
    return records
