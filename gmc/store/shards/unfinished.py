"""Rows that are not finished: the columns of a shard as bytes, for a checkpoint, without the checks that whole rows pass."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from gmc.errors import DataError
from gmc.registry import in_one_line
from gmc.store.shards.reader import rollouts_of
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.schema import SCHEMA
from gmc.store.shards.writer import rollout_table


def encode_rows(rows: Sequence[Rollout], origin: str) -> bytes:
    """A Parquet file of these rows. Numbers come back as they are, but rewards and log-probs as float32."""
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rollout_table(rows, origin)]), buffer, compression="zstd", write_page_checksum=True)
    return bytes(memoryview(buffer.getvalue()))


def decode_rows(contents: bytes, origin: str) -> list[Rollout]:
    """The rows that `encode_rows` was given. Raises `DataError` naming `origin` for anything else."""
    try:
        table = pq.read_table(pa.BufferReader(contents), page_checksum_verification=True)
        (batch,) = table.cast(SCHEMA).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=SCHEMA)]
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DataError(f"{origin}: not the rows in flight that a checkpoint holds ({in_one_line(error)})") from error
    return rollouts_of(batch)
