"""How much a Parquet file may unpack to: looked up in its footer before anything is read.

Some hundred bytes can stand for gigabytes: compressed runs, and dictionaries that say one long text a thousand times.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from gmc.errors import DataError
from gmc.store.parquet_footer import Chunk

MAX_COLUMN_BYTES = 2**30
"""A column in memory. A thousand responses of sixty thousand tokens stay below."""


def require_moderate(chunks: Sequence[Chunk], path: Path, columns: Collection[str] | None = None) -> None:
    """Raise `DataError` naming the column that would unpack to more than the limit. columns: those to be read, None for all."""
    sizes: dict[str, int] = {}
    for chunk in chunks:
        name = chunk.path.split(".")[0]
        if columns is None or name in columns:
            sizes[name] = sizes.get(name, 0) + chunk.size
    for name, size in sizes.items():
        _require(path, name, size)


def repeated_texts(chunks: Sequence[Chunk]) -> list[str]:
    """Columns that hold texts by dictionary: read as such, they take no more memory than the footer says."""
    return sorted({chunk.path for chunk in chunks if chunk.repeats_texts})


def require_moderate_texts(column: pa.ChunkedArray, path: Path, name: str) -> None:
    """The same for a column of a dictionary type, before its texts are written out."""
    if pa.types.is_primitive(column.type.value_type):
        return
    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        total += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    _require(path, name, total)


def _require(path: Path, name: str, size: int) -> None:
    if size > MAX_COLUMN_BYTES:
        raise DataError(
            f"{path}: column {name} unpacks to {size / 2**30:.1f} GiB, and the limit is {MAX_COLUMN_BYTES / 2**30:g} GiB a "
            "column; write it as several files"
        )
