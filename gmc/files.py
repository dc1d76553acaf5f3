"""Durable files: whatever a reader can see under its final name is complete and on the disk.

Every file is written under a temporary name in its own folder, flushed, renamed, and the folder is flushed after it.
A crash leaves at most a name that starts with `TEMPORARY_PREFIX`, which no reader takes.
"""

import contextlib
import json
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gmc.errors import DataError

TEMPORARY_PREFIX = ".tmp-"


def fsync_directory(directory: Path) -> None:
    """Flush a directory's own entries (a rename is durable only after this)."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Flush the contents of a closed file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no reader takes and no other process picks."""
    return path.parent / f"{TEMPORARY_PREFIX}{path.name}-{os.getpid()}-{secrets.token_hex(4)}"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary file name to write to; on success flush it and rename it to `path`, on error remove it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        yield temporary
        fsync_file(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
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
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error


def append_jsonl(path: Path, record: dict[str, Any]) -> None:
    """Append one strict-JSON line to a log. Not durable by itself: the checkpoint's frontier is what counts."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(strict_json(record) + "\n")
        file.flush()


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
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
    return records
