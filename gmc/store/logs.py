"""The two logs of a run, one line an update: used.jsonl (which groups it consumed) and metrics.jsonl.

A log is appended to as training goes and cut back to the checkpoint's frontier on resume: a checkpoint after N updates
keeps the lines of updates 0..N-1.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gmc.errors import DataError, unreadable
from gmc.store.files import open_plain, read_bytes, read_jsonl, write_bytes

CURE = "Restore the file from a copy, or start anew with --overwrite."


class GroupRef(NamedTuple):
    """One group: the `group`-th of launch batch `batch`."""

    batch: int
    group: int


class UsedBatches:
    """Launch batches that training has used: all below `low`, and some above it, since the oldest complete one comes first."""

    def __init__(self, batches: Iterable[int] = ()) -> None:
        self.low = 0
        self._above: set[int] = set()
        for batch in batches:
            self.add(batch)

    def add(self, batch: int) -> None:
        """Count a batch as used; once more changes nothing."""
        if batch >= self.low:
            self._above.add(batch)
        while self.low in self._above:
            self._above.remove(self.low)
            self.low += 1

    def __contains__(self, batch: int) -> bool:
        return batch < self.low or batch in self._above


@dataclass(frozen=True)
class Cut:
    """What cutting a log did. dropped: whole lines beyond the frontier; damaged: lines there that are none; torn: a last line
    cut by a crash was there."""

    path: Path
    dropped: int
    torn: bool
    damaged: int = 0

    def __bool__(self) -> bool:
        return bool(self.dropped or self.damaged or self.torn)

    def __str__(self) -> str:
        parts = [f"{self.dropped} updates beyond the checkpoint"] if self.dropped else []
        parts += [f"{self.damaged} damaged lines beyond the checkpoint"] if self.damaged else []
        parts += ["a last line cut by a crash"] if self.torn else []
        return f"{self.path.name}: dropped {' and '.join(parts) or 'nothing'}"


def read_used(path: Path, updates: int | None = None) -> list[list[GroupRef]]:
    """The groups of each update, from update 0. Raises `DataError` when the updates are not 0, 1, 2, …

    updates: when given, how many the run has made by its checkpoint; what lies beyond is not looked at.
    """
    records = _records(path) if updates is None else _first_records(path, updates)
    _require_consecutive(path, records, len(records) if updates is None else updates)
    used = []
    for number, record in enumerate(records, start=1):
        groups = record.get("groups")
        if not isinstance(groups, list) or not all(_is_reference(group) for group in groups):
            raise DataError(f"{path}, line {number}: groups is not a list of [batch, group] pairs. {CURE}")
        used.append([GroupRef(*group) for group in groups])
    return used


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The metrics of each update, from update 0. Raises `DataError` for a line that is not a record of numbers."""
    records = _records(path)
    for number, record in enumerate(records, start=1):
        for name, value in record.items():
            if not isinstance(value, int | float | None):
                raise DataError(f"{path}, line {number}: {name} is no number. {CURE}")
    return records


def _is_reference(group: Any) -> bool:
    return isinstance(group, list) and len(group) == 2 and all(type(number) is int for number in group)


def _records(path: Path) -> list[dict[str, Any]]:
    records: list[Any] = read_jsonl(path)
    for number, record in enumerate(records, start=1):
        _require_record(path, number, record)
    return records


def _require_record(path: Path, number: int, record: Any) -> None:
    if not isinstance(record, dict) or type(record.get("update")) is not int:
        raise DataError(f"{path}, line {number}: not the record of an update. {CURE}")


def cut_log(path: Path, frontier: int) -> Cut:
    """Keep the lines of updates below `frontier` and drop the rest, whatever it is, atomically; says what was dropped.

    Raises `DataError` when a line below the frontier is missing or damaged, since then the log cannot belong to the
    checkpoint.
    """
    *lines, end = _contents(path).split(b"\n")
    kept = lines[:frontier]
    _require_consecutive(path, _first_records(path, frontier), frontier)
    dropped = sum(_readable(line) is not None for line in lines[frontier:])
    cut = Cut(path, dropped, bool(end), len(lines) - len(kept) - dropped)
    if cut:
        write_bytes(path, b"".join(line + b"\n" for line in kept))
    return cut


def _first_records(path: Path, count: int) -> list[dict[str, Any]]:
    lines = _contents(path).split(b"\n")[:-1][:count]
    return [_record(path, number, line) for number, line in enumerate(lines, start=1)]


def _contents(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return b""


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: not valid JSON ({unreadable(error)}). {CURE}") from error
    _require_record(path, number, record)
    return dict(record)


def _readable(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None for a damaged one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _require_consecutive(path: Path, records: Sequence[dict[str, Any]], count: int) -> None:
    updates = [record["update"] for record in records]
    for index in range(max(count, len(updates))):
        found = updates[index] if index < len(updates) else None
        if found != index:
            what = "is missing" if found is None else f"should be there, update {found} is"
            raise DataError(f"{path}, line {index + 1}: update {index} {what}, though the run has made {count} updates. {CURE}")


class GrowingLog:
    """What a log says as it grows: each look reads what was added since the one before. used: the batches of its updates.

    A log that was cut is a new file under the old name; its end is compared, too, since file numbers come again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._start_anew()

    def _start_anew(self) -> None:
        self._end, self._count, self._last = 0, 0, b""
        self.used = UsedBatches()

    def updates(self) -> int:
        """The whole records in the log now; damaged lines do not count. 0 when there is no log."""
        try:
            with open_plain(self._path) as file:
                status = os.fstat(file.fileno())
                if not self._goes_on(file, status):
                    self._start_anew()
                self._file = (status.st_dev, status.st_ino)
                file.seek(self._end)
                self._add(file.read())
        except FileNotFoundError:
            self._file = None
            self._start_anew()
        return self._count

    def _goes_on(self, file: BinaryIO, status: os.stat_result) -> bool:
        if self._file != (status.st_dev, status.st_ino) or status.st_size < self._end:
            return False
        file.seek(self._end - len(self._last))
        return file.read(len(self._last)) == self._last

    def _add(self, added: bytes) -> None:
        complete, newline, _ = added.rpartition(b"\n")
        if not newline:
            return
        lines = complete.split(b"\n")
        for line in lines:
            if (record := _readable(line)) is not None:
                self._count += 1
                for group in filter(_is_reference, record.get("groups") or ()):
                    self.used.add(group[0])
        self._end += len(complete) + 1
        self._last = lines[-1] + b"\n"
