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
from gmc.grading.grade import HOW
from gmc.store.files import atomic_path, open_plain, strict_json
from gmc.store.parquet_footer import FooterError, read_chunks
from gmc.store.parquet_limits import require_moderate

SAMPLED = "sampled"
GREEDY = "greedy"

SETTINGS_KEY = b"gmc.evaluation"


@dataclass(frozen=True, slots=True)
class Sample:
    """One response to one problem.

    decoding: "sampled" or "greedy"; sample: number within the problem and decoding, from 0. answer: the gold; prediction: the
    answer found or None; reward, reward_parts, status, note: see `gmc.rewards.base.Score`. Ids are the record; texts are for
    people. response_mask: which tokens of the response the model sampled, None when it sampled all.
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
    reward: float
    reward_parts: list[float]
    status: str
    note: str | None
    response_mask: list[bool] | None = None

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the model sampled."""
        return len(self.response_token_ids) if self.response_mask is None else sum(self.response_mask)


_ARROW: dict[Any, pa.DataType] = {
    str: pa.string(),
    str | None: pa.string(),
    float: pa.float32(),
    list[float]: pa.list_(pa.float32()),
    int: pa.int32(),
    list[int]: pa.list_(pa.int32()),
    list[bool] | None: pa.list_(pa.bool_()),
}
OLD_COLUMNS = ("correct", "grade", "tier")
NEW_COLUMNS = {"reward", "reward_parts", "status", "note"}
"""What stands in place of the three columns of gmc 0.1."""
MASK = "response_mask"
"""A column that files before 0.3 lack: every token was sampled."""
SCHEMA = pa.schema([(field.name, _ARROW[field.type]) for field in fields(Sample)])


def sample_table(samples: Sequence[Sample]) -> pa.Table:
    """Samples as an Arrow table with the file's schema."""
    return pa.table({name: [getattr(sample, name) for sample in samples] for name in SCHEMA.names}, schema=SCHEMA)


def write_part(path: Path, samples: Sequence[Sample]) -> None:
    """Write one chunk of an unfinished evaluation, atomically and durably."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        pq.write_table(sample_table(samples), file, compression="zstd")


def join_parts(parts: Sequence[Path], path: Path, settings: dict[str, Any]) -> None:
    """Write the finished file from its parts, one row group a part, with the evaluation's settings in its metadata."""
    schema = SCHEMA.with_metadata({SETTINGS_KEY: strict_json(settings).encode()})
    with (
        atomic_path(path) as temporary,
        open(temporary, "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for part in parts:
            with open_plain(part) as stored:
                writer.write_table(pq.read_table(stored, schema=SCHEMA).cast(schema))


def read_samples(path: Path) -> list[Sample]:
    """Every row of a samples file, as plain Python values. Raises `DataError` for a missing, damaged or foreign file."""
    try:
        with open_plain(path) as file:
            require_moderate(read_chunks(file), path)
            present = set(pq.read_schema(file).names)
            old = present >= set(OLD_COLUMNS)
            wanted = set(SCHEMA.names) - ({MASK} - present)
            missing = sorted(wanted - present - (NEW_COLUMNS if old else set()))
            if missing:
                raise DataError(f"{path}: not a samples file of gmc eval (no column {', '.join(missing)})")
            table = pq.read_table(file, columns=[*sorted(wanted - NEW_COLUMNS), *OLD_COLUMNS] if old else sorted(wanted))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (pa.ArrowException, FooterError, OSError, EOFError, UnicodeDecodeError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DataError(f"{path}: not a readable samples file of gmc eval ({reason})") from error
    return [Sample(**(_renewed(row) if old else row)) for row in table.to_pylist()]


def _renewed(row: dict[str, Any]) -> dict[str, Any]:
    """A row that gmc 0.1 wrote."""
    correct, status, tier = (row.pop(name) for name in OLD_COLUMNS)
    reward = float(correct)
    return {**row, "reward": reward, "reward_parts": [reward], "status": status, "note": HOW.get(tier)}
