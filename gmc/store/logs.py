"""The two logs of a run, one line an update: used.jsonl (which groups it consumed) and metrics.jsonl.

A log is appended to as training goes and cut back to the checkpoint's frontier on resume: a checkpoint after N updates
keeps the lines of updates 0..N-1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gmc.errors import DataError
from gmc.store.files import read_jsonl, strict_json, write_text

CURE = "Restore the file from a copy, or start anew with --overwrite."


class GroupRef(NamedTuple):
    """One group: the `group`-th of launch batch `batch`."""

    batch: int
    group: int


@dataclass(frozen=True)
class Cut:
    """What cutting a log did. dropped: whole lines beyond the frontier; torn: a last line cut by a crash was there."""

    path: Path
    dropped: int
    torn: bool

    def __str__(self) -> str:
        parts = [f"{self.dropped} updates beyond the checkpoint"] if self.dropped else []
        parts += ["a last line cut by a crash"] if self.torn else []
        return f"{self.path.name}: dropped {' and '.join(parts) or 'nothing'}"


def read_used(path: Path) -> list[list[GroupRef]]:
    """The groups of each update, from update 0. Raises `DataError` when the updates are not 0, 1, 2, …"""
    records = _records(path)
    _require_consecutive(path, records, len(records))
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
        if not isinstance(record, dict) or type(record.get("update")) is not int:
            raise DataError(f"{path}, line {number}: not the record of an update. {CURE}")
    return records


def cut_log(path: Path, frontier: int) -> Cut:
    """Keep the lines of updates below `frontier` and drop the rest, atomically; says what was dropped.

    Raises `DataError` when a line below the frontier is missing, since then the log cannot belong to the checkpoint.
    """
    records = _records(path)
    torn = path.exists() and path.stat().st_size > 0 and not _ends_with_newline(path)
    kept = [record for record in records if record["update"] < frontier]
    _require_consecutive(path, kept, frontier)
    cut = Cut(path, len(records) - len(kept), torn)
    if cut.dropped or cut.torn:
        write_text(path, "".join(strict_json(record) + "\n" for record in kept))
    return cut


def _require_consecutive(path: Path, records: Sequence[dict[str, Any]], count: int) -> None:
    updates = [record["update"] for record in records]
    for index in range(max(count, len(updates))):
        found = updates[index] if index < len(updates) else None
        if found != index:
            what = "is missing" if found is None else f"should be there, update {found} is"
            raise DataError(f"{path}, line {index + 1}: update {index} {what}, though the run has made {count} updates. {CURE}")


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"
