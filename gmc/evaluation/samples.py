"""One evaluated response as a row, and the Parquet file of them.

The file's schema is explicit, so a column that is null throughout keeps its type, and a row carries its problem's id and its
sample number, so readers join by key and never by position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gmc.errors import DataError
from gmc.store.files import atomic_path, strict_json

SAMPLED = "sampled"
GREEDY = "greedy"

SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("kind", pa.string()),
        ("decoding", pa.string()),
        ("sample", pa.int32()),
        ("question", pa.string()),
        ("answer", pa.string()),
        ("prompt", pa.string()),
        ("prompt_token_ids", pa.list_(pa.int32())),
        ("response", pa.string()),
        ("response_token_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("prediction", pa.string()),
        ("correct", pa.bool_()),
        ("grade", pa.string()),
        ("tier", pa.string()),
    ]
)
SETTINGS_KEY = b"gmc.evaluation"


@dataclass(frozen=True, slots=True)
class Sample:
    """One response to one problem.

    decoding: "sampled" or "greedy"; sample: number within the problem and decoding, from 0. answer: the gold; prediction: the
    extracted answer or None; grade and tier: see `gmc.grading.grade.Verdict`. Ids are the record; texts are for people.
    """

    problem_id: str
    kind: str
    decoding: str
    sample: int
    question: str
    answer: str
    prompt: str
    prompt_token_ids: list[int]
    response: str
    response_token_ids: list[int]
    finish_reason: str
    prediction: str | None
    correct: bool
    grade: str
    tier: str


def sample_table(samples: Sequence[Sample]) -> pa.Table:
    """Samples as an Arrow table with the file's schema."""
    columns = {field.name: [getattr(sample, field.name) for sample in samples] for field in fields(Sample)}
    return pa.table(columns, schema=SCHEMA)


def write_part(path: Path, samples: Sequence[Sample]) -> None:
    """Write one chunk of an unfinished evaluation, atomically and durably."""
    with atomic_path(path) as temporary:
        pq.write_table(sample_table(samples), temporary, compression="zstd")


def join_parts(parts: Sequence[Path], path: Path, settings: dict[str, Any]) -> None:
    """Write the finished file from its parts, one row group a part, with the evaluation's settings in its metadata."""
    schema = SCHEMA.with_metadata({SETTINGS_KEY: strict_json(settings).encode()})
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(pq.read_table(part, schema=SCHEMA).cast(schema))


def read_samples(path: Path) -> list[Sample]:
    """Every row of a samples file, as plain Python values. Raises `DataError` for a missing, damaged or foreign file."""
    names = [field.name for field in fields(Sample)]
    try:
        missing = sorted(set(names) - set(pq.read_schema(path).names))
        if missing:
            raise DataError(f"{path}: not a samples file of gmc eval (no column {', '.join(missing)})")
        table = pq.read_table(path, columns=names)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable samples file of gmc eval ({str(error).splitlines()[0]})") from error
    return [Sample(**row) for row in table.to_pylist()]
