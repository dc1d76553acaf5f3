"""Deciding between processes on machines that share a folder, with atomic rename alone.

A record is a folder that holds `record.json`. A folder cannot be renamed onto one that is not empty, so of several writers of
one record exactly one succeeds, and whoever sees the record sees all of it.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gmc.store.files import disk_errors, fsync_directory, fsync_file, make_directory, read_json, write_json
from gmc.store.records import checked
from gmc.store.temporary import remove, temporary_name

RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """follower: who made the record; shard: the file it decided for, "" where it is no decision."""

    follower: str
    shard: str = ""


_RECORD = TypeAdapter(Record)
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def stage(path: Path) -> Path:
    """A new folder beside `path`, to be filled and then given to `decide`; no reader takes it."""
    make_directory(path.parent)
    folder = temporary_name(path)
    with disk_errors(path):
        folder.mkdir()
    return folder


def decide(path: Path, staged: Path, record: dict[str, Any]) -> bool:
    """Make the staged folder, with its record, the one at `path`; False, and the staged folder gone, when there is one."""
    try:
        with disk_errors(path):
            for entry in staged.iterdir():
                fsync_file(entry)
            write_json(staged / RECORD, record)  # which flushes the staged folder too
            if not _rename(staged, path):
                remove(staged)
                return False
    except BaseException:
        remove(staged)
        raise
    fsync_directory(path.parent)
    return True


def _rename(staged: Path, path: Path) -> bool:
    """Whether the folder got the name: no other had it."""
    try:
        os.rename(staged, path)
    except OSError as error:
        if error.errno not in TAKEN:
            raise
        return False
    return True


def record_once(path: Path, record: dict[str, Any]) -> bool:
    """Write the record at `path` unless there is one. True for exactly one of all writers."""
    return not path.exists() and decide(path, stage(path), record)


def read_record(path: Path) -> Record:
    """The record at `path`. Raises `DataError` when it is damaged, or not there any more."""
    cure = f"remove the folder {path.name}, and the batch is made again"
    return checked(_RECORD, read_json(path / RECORD, cure), path / RECORD, cure)


def forget(path: Path) -> None:
    """Remove a record, in one step for readers."""
    doomed = temporary_name(path)
    try:
        os.rename(path, doomed)
    except FileNotFoundError:
        return
    remove(doomed)
