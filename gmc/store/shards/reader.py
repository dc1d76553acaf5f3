"""Reading shards strictly: the writer's checks again, and never a skipped row."""

import contextlib
import dataclasses
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gmc.errors import DataError, GmcError
from gmc.store.files import open_plain
from gmc.store.parquet_footer import Chunk, FooterError, read_chunks
from gmc.store.parquet_limits import repeated_texts, require_moderate, require_moderate_texts
from gmc.store.shards.check import Check, list_column, sampled_lengths
from gmc.store.shards.rollout import Rollout, SetAside, ShardMetadata
from gmc.store.shards.schema import (
    NULLABLE_COLUMNS,
    OLD_NAMES,
    OPTIONAL_COLUMNS,
    SCHEMA,
    TEXT_COLUMNS,
    WHOLE_COLUMNS,
    decode_metadata,
)

CURE = "Restore the file from a copy; before training, delete it and `gmc rollout` makes it again."

TYPES = {field.name: field.type for field in SCHEMA}
ROLLOUT_FIELDS = [field.name for field in dataclasses.fields(Rollout)]


@dataclass(frozen=True)
class Shard:
    """One shard: its record, its rows ordered by group then sample, and where it came from."""

    metadata: ShardMetadata
    rollouts: list[Rollout]
    path: Path


def read_shard(
    path: Path,
    *,
    run_id: str | None = None,
    tokenizer_hash: str | None = None,
    context_tokens: int | None = None,
    texts: bool = True,
) -> Shard:
    """Read and check a whole shard. Values come back as plain Python lists, numbers and texts.

    run_id, tokenizer_hash: when given, a file of another run or tokenizer is refused. context_tokens: when given, so is a row
    that is longer. texts: whether to read prompts and responses as text; they are empty otherwise.
    Extra columns are ignored, the order of columns and rows does not matter. Raises `DataError` naming file, row, column and
    cure for anything else that breaks the contract: a missing, truncated or foreign file, another schema version, a missing
    column or one of another type, and every value that the writer refuses.
    """
    with _parquet(path) as (file, chunks):
        metadata = decode_metadata(str(path), file.schema_arrow.metadata)
        _require(path, "run id", metadata.run_id, run_id)
        _require(path, "tokenizer hash", metadata.tokenizer_hash, tokenizer_hash)
        old_names = OLD_NAMES if metadata.schema_version == 1 else {}
        table, order = _sorted(_conform(file, chunks, SCHEMA.names, path, old_names, without=() if texts else TEXT_COLUMNS))
    Check(table, metadata, path, CURE, order, context_tokens).run()
    return Shard(metadata, rollouts_of(table), path)


def read_metadata(path: Path) -> ShardMetadata:
    """Read only the file-level record (the Parquet footer)."""
    with _parquet(path) as (file, _):
        return decode_metadata(str(path), file.schema_arrow.metadata)


@dataclass(frozen=True)
class Launch:
    """What a launch came to. lengths_PG: of its responses, in tokens; set_aside: groups sampled besides."""

    lengths_PG: list[list[int]]
    set_aside: tuple[SetAside, ...] = ()


def count_groups(path: Path) -> int:
    """How many groups a shard holds, from its footer alone. Raises `DataError` when its rows are no whole groups."""
    with _parquet(path) as (file, _):
        size = decode_metadata(str(path), file.schema_arrow.metadata).group_size
        rows: int = file.metadata.num_rows
    if rows % size:
        raise _no_whole_groups(path, size)
    return rows // size


def read_lengths(path: Path) -> list[list[int]]:
    """Response lengths in sampled tokens, P × G, reading only the columns needed.

    Raises `DataError` for a group that is not whole.
    """
    return read_launch(path).lengths_PG


def read_launch(path: Path) -> Launch:
    """The launch that a shard holds, reading only what is needed. Raises `DataError` for a group that is not whole."""
    with _parquet(path) as (file, chunks):
        metadata = decode_metadata(str(path), file.schema_arrow.metadata)
        table, _ = _sorted(_conform(file, chunks, ["group", "sample", "response_token_ids", "response_mask"], path))
    for name in ("group", "sample", "response_token_ids"):
        if table.column(name).null_count:
            raise DataError(f"{path}: column {name} has nulls, and it must have a value in every row. {CURE}")
    size = metadata.group_size
    place = np.arange(table.num_rows)
    group, sample = table.column("group").to_numpy(), table.column("sample").to_numpy()
    if table.num_rows % size or (group != place // size).any() or (sample != place % size).any():
        raise _no_whole_groups(path, size)
    column = list_column(table, "response_token_ids")
    assert column is not None
    return Launch(sampled_lengths(table, column).reshape(-1, size).tolist(), metadata.set_aside)


def _no_whole_groups(path: Path, size: int) -> DataError:
    return DataError(f"{path}: column group: the file does not hold whole groups of {size} samples. {CURE}")


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[tuple[pq.ParquetFile, list[Chunk]]]:
    """Open a Parquet file and read its footer; whatever the library says about a bad one becomes one `DataError` that names it.

    The library is given an open file: of a path it takes `s3:x` for an address, and no byte that is not UTF-8.
    """
    try:
        with open_plain(path) as opened:
            chunks = read_chunks(opened)
            with pq.ParquetFile(
                opened, pre_buffer=False, page_checksum_verification=True, read_dictionary=repeated_texts(chunks)
            ) as file:
                yield file, chunks
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file.") from error
    except GmcError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, FooterError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{path}: truncated or damaged Parquet file ({reason}). {CURE}") from error


def _require(path: Path, what: str, found: str, wanted: str | None) -> None:
    if wanted is not None and found != wanted:
        raise DataError(
            f"{path}: the file's {what} is {found!r}, this run's is {wanted!r}. It belongs to another run: move it away, or "
            "bring it in on purpose with `--rollouts DIR`."
        )


def _conform(
    file: pq.ParquetFile,
    chunks: Sequence[Chunk],
    names: Sequence[str],
    path: Path,
    old_names: Mapping[str, str] = MappingProxyType({}),
    *,
    without: Collection[str] = (),
) -> pa.RecordBatch:
    """The named columns of a file in the contract's types; what is wider without loss of meaning is narrowed.

    old_names: what a column is called in this file, where that is not its name. without: texts that are left empty, unread.
    """
    present = file.schema_arrow.names
    counts = Counter(present)
    counts.update({name: counts[old] for name, old in old_names.items()})
    for name in names:
        if counts[name] > 1:
            raise DataError(f"{path}: column {name} occurs twice. {CURE}")
        if not counts[name] and name not in OPTIONAL_COLUMNS:
            raise DataError(f"{path}: column {old_names.get(name, name)} is missing (found: {', '.join(present)}). {CURE}")
    needed = [old_names.get(name, name) for name in names if counts[name] and name not in without]
    require_moderate(chunks, path, needed)
    table = file.read(columns=None if needed == present else needed, use_threads=False)
    columns = []
    for name in names:
        wanted = TYPES[name]
        if name in without:
            columns.append(pa.repeat("", table.num_rows))
            continue
        column = (
            table.column(old_names.get(name, name)) if counts[name] else pa.chunked_array([pa.nulls(table.num_rows, wanted)])
        )
        if pa.types.is_dictionary(column.type):
            require_moderate_texts(column, path, name)
        if column.type != wanted:
            column = _narrow(column, wanted, name, path)
        columns.append(column.combine_chunks())
    conformed = pa.RecordBatch.from_arrays(columns, names=list(names))
    conformed.validate(full=True)
    return conformed


def _narrow(column: pa.ChunkedArray, wanted: pa.DataType, name: str, path: Path) -> pa.ChunkedArray:
    if not _same_kind(column.type, wanted):
        raise DataError(f"{path}: column {name} has type {column.type}, the contract says {wanted}. {CURE}")
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: column {name} has values that {wanted} cannot hold ({error}). {CURE}") from error


def _same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps the meaning: other widths of one kind, never numbers to text or text to numbers."""
    types = pa.types
    if types.is_null(found):
        return True
    if types.is_dictionary(found):
        return _same_kind(found.value_type, wanted)
    if types.is_list(wanted):
        lists = types.is_list(found) or types.is_large_list(found) or types.is_fixed_size_list(found)
        return lists and _same_kind(found.value_type, wanted.value_type)
    if types.is_string(wanted):
        return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))
    if types.is_integer(wanted):
        return bool(types.is_integer(found))
    if types.is_boolean(wanted):
        return bool(types.is_boolean(found))
    return bool(types.is_floating(found))


def _sorted(table: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int] | None]:
    """The rows ordered by group then sample, and the place of each in the file (None: as they were)."""
    group, sample = table.column("group"), table.column("sample")
    if group.null_count or sample.null_count:
        return table, None
    order = np.lexsort((sample.to_numpy(), group.to_numpy()))
    if (order == np.arange(len(order))).all():
        return table, None
    return table.take(pa.array(order)), order.tolist()


def rollouts_of(table: pa.RecordBatch) -> list[Rollout]:
    """The rows of a table of `SCHEMA`, as plain Python values."""
    columns = [_python_values(table, SCHEMA.field(name)) for name in ROLLOUT_FIELDS]
    return [Rollout(*row) for row in zip(*columns, strict=True)]


def _python_values(table: pa.RecordBatch, field: pa.Field) -> list[Any]:
    """A checked column as plain Python values; through NumPy, which is several times faster than `to_pylist`."""
    column = table.column(field.name)
    if field.name in WHOLE_COLUMNS and column.null_count:
        return [None] * table.num_rows
    if field.name in NULLABLE_COLUMNS and pa.types.is_list(field.type):
        found: list[Any] = column.to_pylist() if column.null_count < table.num_rows else [None] * table.num_rows
        return found
    if not pa.types.is_list(field.type):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    lists = list_column(table, field.name)
    assert lists is not None
    flat, starts = lists.values.tolist(), lists.starts.tolist()
    return [flat[start:end] for start, end in itertools.pairwise(starts)]
