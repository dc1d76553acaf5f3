"""Writing one shard: checked first, then visible all at once."""

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from gmc.errors import DataError
from gmc.store.files import write_bytes
from gmc.store.shards.check import Check
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.schema import SCHEMA, encode_metadata

# Readers of nested columns stumble over large row groups (32-bit offsets), so groups stay well below the contract's 64 MiB.
ROW_GROUP_BYTES = 32 * 2**20
CURE = "Nothing was written: the producer of this row has to be fixed."


DIVERGED = (
    "has no numbers for log-probs, so it has diverged; nothing was written. Go on from the last checkpoint with --resume and a "
    "lower optimizer.learning_rate, or start anew with one."
)


def write_shard(path: Path, rollouts: Sequence[Rollout], metadata: ShardMetadata) -> None:
    """Write the rollouts of one launch batch, ordered by group then sample, as one Parquet file: atomic and durable.

    Raises `DataError` naming file, row and column when a row breaks the contract (see `Check` and docs/shards.md), in which
    case nothing is written; `GmcError` when the file exists already (shards are never rewritten) or the disk is full.
    """
    _require_sampled(path, rollouts)
    table = rollout_table(rollouts, str(path))
    Check(table, metadata, path, CURE).run()
    if path.exists():
        raise DataError(f"{path}: exists already, and a shard is never rewritten. Remove it or use another run.")
    buffer = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_batches([table]).replace_schema_metadata(encode_metadata(metadata)),
        buffer,
        row_group_size=_rows_per_group(table),
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    write_bytes(path, memoryview(buffer.getvalue()))


def _require_sampled(path: Path, rollouts: Sequence[Rollout]) -> None:
    """Raise `DataError` for a batch without a single log-prob that is a number: then no row is at fault, its policy is."""
    values = [value for row in rollouts for value in row.engine_logprobs or ()]
    if values and all(value != value for value in values):  # NaN alone differs from itself
        raise DataError(f"{path}: policy version {rollouts[0].policy_version} {DIVERGED}")


def _rows_per_group(table: pa.RecordBatch) -> int:
    row_bytes = table.nbytes / max(table.num_rows, 1)
    return max(1, int(ROW_GROUP_BYTES / max(row_bytes, 1)))


def rollout_table(rollouts: Sequence[Rollout], origin: str) -> pa.RecordBatch:
    """The rollouts as one Arrow batch of `SCHEMA`. Raises `DataError` naming row and column of a value of a wrong type."""
    columns = []
    rows = map(attrgetter(*SCHEMA.names), rollouts)
    by_column = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    for field, values in zip(SCHEMA, by_column, strict=True):
        try:
            columns.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            _name_the_row(values, field, rollouts, origin)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _name_the_row(values: Sequence[Any], field: pa.Field, rollouts: Sequence[Rollout], origin: str) -> NoReturn:
    for row, value in enumerate(values):
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            where = f"row {row} (group {rollouts[row].group}, sample {rollouts[row].sample}), column {field.name}"
            raise DataError(f"{origin}: {where}: not storable as {field.type} ({error}). {CURE}") from error
    raise AssertionError(f"column {field.name} fails as a whole but not by row")
