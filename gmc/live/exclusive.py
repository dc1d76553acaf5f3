"""Deciding between processes on machines that share a folder, with atomic rename alone.

A record is a folder that holds `record.json`. A folder cannot be renamed onto one that is not empty, so of several writers of
one record exactly one succeeds, and whoever sees the record sees all of it.
"""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

from gmc.store.files import fsync_directory, fsync_file, make_directory, read_json, temporary_name, write_json

RECORD = "record.json"
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def stage(path: Path) -> Path:
    """A new folder beside `path`, to be filled and then given to `decide`; no reader takes it."""
    make_directory(path.parent)
    folder = temporary_name(path)
    folder.mkdir()
    return folder


def decide(path: Path, staged: Path, record: dict[str, Any]) -> bool:
    """Make the staged folder, with its record, the one at `path`; False, and the staged folder gone, when there is one."""
    for entry in staged.iterdir():
        fsync_file(entry)
    write_json(staged / RECORD, record)  # which flushes the staged folder too
    try:
        os.rename(staged, path)
    except OSError as error:
        shutil.rmtree(staged)
        if error.errno not in TAKEN:
            raise
        return False
    fsync_directory(path.parent)
    return True


def record_once(path: Path, record: dict[str, Any]) -> bool:
    """Write the record at `path` unless there is one. True for exactly one of all writers."""
    return not path.exists() and decide(path, stage(path), record)


def read_record(path: Path) -> Any:
    """The record at `path`. Raises `DataError` when it is not there any more."""
    return read_json(path / RECORD)


def forget(path: Path) -> None:
    """Remove a record, in one step for readers."""
    doomed = temporary_name(path)
    try:
        os.rename(path, doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed)
