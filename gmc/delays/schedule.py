"""Schedules: which rollout is used at which update, as a Parquet file, read, written, or taken from a run."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gmc.delays.base import GroupRef, GroupTimes
from gmc.errors import DataError, UsageError, no_file
from gmc.store.files import atomic_path, open_plain, strict_json
from gmc.store.formats import read_format, stamp


class ScheduleRow(NamedTuple):
    """One group at its place: the `position`-th group of `update`; times on the virtual clock (updates) or None."""

    update: int
    position: int
    batch: int
    group: int
    policy_version: int
    launched_at: float | None
    ready_at: float | None


_METADATA_KEY = b"gmc"
_USES = "uses"
"""How many updates may use one group: a file that says nothing means one, so that a doubled row is found out."""
_TYPES = {
    "update": "int64",
    "position": "int32",
    "batch": "int64",
    "group": "int32",
    "policy_version": "int64",
    "launched_at": "double",
    "ready_at": "double",
}


def write_schedule(path: Path, rows: Sequence[ScheduleRow], *, uses: int = 1) -> None:
    """Write `schedule.parquet` atomically. uses: how many updates may use one group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    origin = {**stamp(), _USES: uses}
    schema = pa.schema(list(_TYPES.items()), metadata={_METADATA_KEY: strict_json(origin)})
    columns = list(zip(*rows, strict=True)) or [()] * len(_TYPES)
    table = pa.table([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        pq.write_table(table, file, compression="zstd")


def read_schedule(path: Path) -> tuple[list[ScheduleRow], int]:
    """The rows of a schedule in order of use, and P. Raises `DataError` when it is none, newer, or contradicts itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gmc.store.parquet_footer import FooterError, read_chunks
    from gmc.store.parquet_limits import require_moderate

    if not path.is_file():
        raise UsageError(f"{path}: {no_file(path)}; gmc simulate-delay writes one")
    try:
        with open_plain(path) as file:
            require_moderate(read_chunks(file), path)
            table = pq.read_table(file)
        origin = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, b"{}"))
    except (pa.ArrowException, FooterError, ValueError, OSError, EOFError, RecursionError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DataError(f"{path}: not a Parquet file of a schedule ({reason})") from error
    read_format(path, origin)
    missing = [name for name in _TYPES if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: not a schedule, column {missing[0]} is missing; gmc simulate-delay writes schedules")
    columns = [table[name].to_pylist() for name in _TYPES]
    for name, column in list(zip(_TYPES, columns, strict=True))[:5]:
        for row, value in enumerate(column):
            if type(value) is not int or value < 0:
                raise DataError(f"{path}, row {row}: {name} is {value!r}, not a whole number of at least 0")
    rows = sorted(ScheduleRow(*values) for values in zip(*columns, strict=True))
    return rows, _check(path, rows, uses=origin.get(_USES, 1))


def prompts_of(rows: Sequence[ScheduleRow]) -> int:
    """P, the number of groups an update takes, of a schedule in order of use."""
    return -(-len(rows) // (rows[-1].update + 1))


def uses_of(rows: Sequence[ScheduleRow]) -> int:
    """How many updates use the group that the rows use most often; at least 1."""
    return max(Counter((row.batch, row.group) for row in rows).values(), default=1)


def _check(path: Path, rows: Sequence[ScheduleRow], *, uses: int) -> int:
    """Check that the rows use every group at most `uses` times, at one place, by one version a batch; returns P."""
    if not rows:
        raise DataError(f"{path}: an empty schedule; gmc simulate-delay writes schedules")
    prompts = prompts_of(rows)
    users: dict[GroupRef, list[int]] = {}
    versions: dict[int, int] = {}
    for place, row in enumerate(rows):
        if (row.update, row.position) != divmod(place, prompts):
            raise DataError(
                f"{path}: update {place // prompts} has no group at position {place % prompts} or has two; "
                f"every update needs positions 0 to {prompts - 1} once"
            )
        name = f"batch {row.batch}, group {row.group}"
        if row.group >= prompts:
            raise DataError(f"{path}: update {row.update} names {name}, which does not exist: a batch has {prompts} groups")
        before = users.setdefault(GroupRef(row.batch, row.group), [])
        if row.update in before or len(before) >= uses:
            often = f"{len(before) + 1} times" if len(before) > 1 else "twice"
            raise DataError(f"{path}: {name} is used {often}, at update {before[-1]} and at update {row.update}")
        before.append(row.update)
        if row.policy_version > row.update:
            raise DataError(
                f"{path}: update {row.update} cannot use {name} of policy version {row.policy_version}, which comes later"
            )
        if versions.setdefault(row.batch, row.policy_version) != row.policy_version:
            raise DataError(
                f"{path}: batch {row.batch} is given two policy versions, {versions[row.batch]} and {row.policy_version}"
            )
    if len(rows) % prompts:
        raise DataError(f"{path}: the last update has {len(rows) % prompts} of {prompts} groups")
    return prompts


def schedule_of_run(
    used: Sequence[Sequence[GroupRef]],
    policy_versions: Mapping[int, int],
    times: Mapping[GroupRef, GroupTimes] | None = None,
) -> list[ScheduleRow]:
    """The schedule that a run followed, from the groups of each update (used.jsonl) and the version of each batch (shards).

    times: launch and ready times where the run had a clock. Raises `DataError` when a used batch has no shard.
    """
    rows = []
    for update, groups in enumerate(used):
        for position, reference in enumerate(groups):
            if reference.batch not in policy_versions:
                raise DataError(f"update {update} used batch {reference.batch}, and its shard is missing; restore it")
            launched_at, ready_at = (times or {}).get(reference, GroupTimes(None, None))
            version = policy_versions[reference.batch]
            rows.append(ScheduleRow(update, position, *reference, version, launched_at, ready_at))
    return rows
