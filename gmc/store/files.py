"""Durable files: whatever a reader can see under its final name is complete and on the disk.

Every file is written under a temporary name in its own folder, flushed, renamed, and the folder is flushed after it.
A folder is filled under a temporary name too, and its `READY` marker is written after everything else is on the disk.
A crash leaves at most a name that starts with `TEMPORARY_PREFIX` or a folder without the marker, which no reader takes.
"""

import contextlib
import errno
import fnmatch
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from gmc.errors import DataError, GmcError, UsageError, unreadable
from gmc.store.temporary import TEMPORARY_PREFIX, remove, temporary_name

READY = "READY"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def disk_errors(path: Path, operation: str = "write") -> Iterator[None]:
    """Turn what the operating system refuses into one `GmcError` that names `path` and the operation; the rest passes."""
    try:
        yield
    except Exception as error:
        if (number := _system_error(error)) is None:
            raise
        if number in DISK_FULL:
            raise GmcError(
                f"{path}: cannot {operation}, the disk is full or a quota is reached ({os.strerror(number)}). "
                "Free some space and run the command again (gmc train with --resume)."
            ) from error
        raise GmcError(
            f"{path}: cannot {operation}: {os.strerror(number)}{_other_file(error, path)}. "
            "Check the disk and the permissions, then run the command again (gmc train with --resume)."
        ) from error


def _system_error(error: BaseException) -> int | None:
    """The number of the operating system's error behind an exception, else None.

    Libraries written in Rust report that number only in their text. What is met while filling a temporary folder comes here
    as the cause of a `GmcError`, which then names the folder's final name.
    """
    if isinstance(error, GmcError):
        return None if error.__cause__ is None else _system_error(error.__cause__)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    reported = re.search(r"\(os error (\d+)\)", str(error))
    return int(reported[1]) if reported else None


def _other_file(error: BaseException, path: Path) -> str:
    """The file that an error names, where it is another than `path` and no temporary one."""
    named = getattr(error, "filename", None)
    if not isinstance(named, str) or Path(named) == path or TEMPORARY_PREFIX in named:
        return ""
    return f" ({named})"


def fsync_directory(directory: Path) -> None:
    """Flush a directory's own entries (a rename is durable only after this)."""
    with disk_errors(directory, "flush"):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make a folder and those above it, each durable in the one that holds it: what lies in a lost folder is lost."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    with disk_errors(directory, "make"):
        directory.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        fsync_directory(folder.parent)


def fsync_file(path: Path) -> None:
    """Flush the contents of a closed file."""
    with disk_errors(path, "flush"), open(path, "rb") as file:
        os.fsync(file.fileno())


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
    Files get the permissions that the folder has: some libraries write theirs for their owner alone.
    """
    with _filled_directory(path) as temporary:
        yield temporary
    with disk_errors(path):
        write_text(path / READY, "complete\n")


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """The same without a marker, for folders that other programs read. Raises `UsageError` where something is already."""
    require_free(path)
    with _filled_directory(path) as temporary:
        yield temporary


def require_free(path: Path) -> None:
    """Raise `UsageError` where something is that `new_directory` would replace."""
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise UsageError(f"{path}: there is something already; give another folder, or remove it")


@contextlib.contextmanager
def _filled_directory(path: Path) -> Iterator[Path]:
    temporary = begin_directory(path)
    with disk_errors(path):
        try:
            yield temporary
            _put_in_place(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def begin_directory(path: Path) -> Path:
    """The temporary folder, empty, that `finish_directory` makes `path` of: for what several processes fill."""
    temporary = temporary_name(path)
    with disk_errors(path):
        make_directory(path.parent)
        temporary.mkdir()
    return temporary


def finish_directory(temporary: Path, path: Path) -> None:
    """Flush a filled temporary folder, rename it to `path` and write `READY` last, as `ready_directory` does."""
    with disk_errors(path):
        _put_in_place(temporary, path)
        write_text(path / READY, "complete\n")


def _put_in_place(temporary: Path, path: Path) -> None:
    _finish_tree(temporary)
    withdraw_directory(path)
    os.replace(temporary, path)
    fsync_directory(path.parent)


def _finish_tree(directory: Path) -> None:
    """Give every file the folder's permissions, which are those of the umask, and flush files and folders."""
    mode = stat.S_IMODE(directory.stat().st_mode) & 0o666
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent, name)
            path.chmod(mode)
            fsync_file(path)
        fsync_directory(Path(parent))


def entries(folder: Path, pattern: str) -> list[Path]:
    """What lies in a folder under names like `pattern`, in order; nothing where there is no folder.

    Raises `OSError` for a folder that may not be read, which `Path.glob` takes for an empty one.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names) if fnmatch.fnmatchcase(name, pattern)]


def is_ready(directory: Path) -> bool:
    """Whether a folder is complete and durable: its marker exists."""
    return (directory / READY).is_file()


def withdraw_directory(path: Path) -> None:
    """Remove a published folder, if there is one, so that no reader ever sees half of it: the marker goes first.

    What the system does not let go yet stays under a temporary name for the next clean-up.
    """
    if not path.exists():
        return
    with disk_errors(path, "remove"):
        (path / READY).unlink(missing_ok=True)
        fsync_directory(path)
        doomed = temporary_name(path)
        os.replace(path, doomed)
        fsync_directory(path.parent)
    remove(doomed)


def set_aside(paths: Sequence[Path]) -> list[Path]:
    """Move files or folders that lie together to a new folder `aside-<n>` beside them; returns their new paths."""
    directory = paths[0].parent
    aside = next(place for n in itertools.count(1) if not os.path.lexists(place := directory / f"aside-{n}"))
    moved = [aside / path.name for path in paths]
    with disk_errors(aside):
        aside.mkdir()
        for path, target in zip(paths, moved, strict=True):
            os.replace(path, target)
    fsync_directory(aside)
    fsync_directory(directory)
    return moved


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a whole file atomically and durably."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole UTF-8 text file atomically and durably."""
    write_bytes(path, content.encode("utf-8"))


@contextlib.contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Open one of gmc's own files for reading.

    Raises `FileNotFoundError` when there is none, `DataError` for what is no plain file, such as a pipe, from which a reader
    would wait for ever, and `GmcError` naming the file when the system refuses.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DataError(f"{path}: not a plain file; remove it")
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno is None:  # a library's own, about what the file holds
            raise
        raise GmcError(f"{path}: cannot read: {error.strerror}") from error


def read_bytes(path: Path) -> bytes:
    """The contents of a file; raises what `open_plain` raises."""
    with open_plain(path) as file:
        return file.read()


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def checksum(path: Path) -> str:
    """SHA-256 of a file: one flipped bit must not go on training."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def read_json(path: Path, cure: str = "restore it from a copy") -> Any:
    """Read one JSON file; raises `DataError` naming the file, and the cure, when it is missing or damaged."""
    try:
        return json.loads(read_bytes(path).decode("utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; {cure}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({unreadable(error)}); {cure}") from error


def append_jsonl(path: Path, record: dict[str, Any]) -> None:
    """Append one strict-JSON line to a log. Not durable by itself: the checkpoint's frontier is what counts."""
    with disk_errors(path), open(path, "a", encoding="utf-8") as file:
        file.write(strict_json(record) + "\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read one of gmc's own logs.

    A last line cut by a crash is left out, and so are last lines that hold zeros: a file that grew just before the power went
    has them. Damage elsewhere raises `DataError`.
    """
    try:
        lines = read_bytes(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    while lines and b"\0" in lines[-1]:
        lines.pop()
    records = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}, line {number}: not valid JSON ({unreadable(error)}); restore the file from a copy"
            ) from error
    return records
