"""Anybody's table of rollouts, row by row: which column is what, and what a row must hold."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.errors import DataError, UsageError, no_file
from gmc.problems.fields import lookup, plain
from gmc.problems.readers import read_rows

if TYPE_CHECKING:
    import pandas

COLUMNS: dict[str, tuple[str, ...]] = {
    "prompt_token_ids": ("prompt_token_ids", "prompt_ids"),
    "prompt": ("prompt", "input", "question"),
    "response_token_ids": ("response_token_ids", "completion_ids", "response_ids", "output_token_ids"),
    "response": ("response", "completion", "output"),
    "logprobs": ("logprobs", "engine_logprobs", "sampling_logprobs", "rollout_log_probs", "sampling_per_token_logps"),
    "response_mask": ("response_mask",),
    "reward": ("reward", "score", "rewards"),
    "policy_version": ("policy_version", "version", "step"),
    "group": ("group", "uid", "problem_id", "prompt_id"),
    "finish_reason": ("finish_reason",),
    "status": ("status",),
    "answer": ("answer", "gts", "ground_truth", "solution"),
    "prediction": ("prediction",),
}
"""What a rollout may bring, and the names under which it is looked for; the first that a file has is taken."""


@dataclass(frozen=True)
class Frame:
    """A table of rollouts. origin: its file; rows: each with the place that messages name; columns: its own name of each."""

    origin: str
    rows: Sequence[tuple[str, Mapping[str, Any]]]
    columns: Mapping[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether it has a column for this."""
        return name in self.columns

    def value(self, row: Mapping[str, Any], name: str) -> Any:
        """A row's value, None where the table has no such column or the row nothing in it."""
        return _own(lookup(row, self.columns[name])[1]) if name in self.columns else None

    def fail(self, place: str, name: str, problem: str) -> DataError:
        """The error for one value."""
        return DataError(f"{self.origin}, {place}, column {self.columns.get(name, name)}: {problem}")


def read_frame(source: "Path | pandas.DataFrame", named: Mapping[str, str]) -> Frame:
    """A Parquet, JSONL, JSON or CSV file, or a pandas frame.

    named: the table's own name of what `COLUMNS` lists, where that is another. Raises `DataError` for an unreadable file,
    `UsageError` for a name that is not there, or a table without prompts, responses or rewards.
    """
    if isinstance(source, Path):
        if not source.is_file():
            raise UsageError(f"{source}: {no_file(source)}")
        origin, rows = str(source), [(row.place, plain(dict(row.values))) for row in read_rows(source)]
    else:
        records = source.to_dict(orient="records")
        origin, rows = "the frame", [(f"row {number}", record) for number, record in enumerate(records, start=1)]
    present = list(dict.fromkeys(name for _, row in rows[:100] for name in row))
    columns = {}
    for name in named:
        if name not in COLUMNS:
            raise UsageError(f"--column {name}=…: there is no such thing; there are {', '.join(COLUMNS)}")
    for name, known in COLUMNS.items():
        wanted = [named[name]] if name in named else [one for one in known if one in present]
        if name in named and not any(lookup(row, named[name])[0] for _, row in rows[:1]):
            raise UsageError(f"{origin}: no column {named[name]} (for {name}); it has {', '.join(map(str, present))}")
        if wanted:
            columns[name] = wanted[0]
    for either in (("prompt_token_ids", "prompt"), ("response_token_ids", "response"), ("reward",)):
        if not any(name in columns for name in either):
            looked = ", ".join(one for name in either for one in COLUMNS[name])
            raise UsageError(
                f"{origin}: no column for {' or '.join(either)} (looked for {looked}; it has {', '.join(map(str, present))}); "
                f"name it by --column {either[-1]}=ITS_NAME"
            )
    return Frame(origin, rows, columns)


def _own(value: Any) -> Any:
    """Plain Python of what pandas holds: arrays are lists, NaN is None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return None if isinstance(value, float) and value != value else value


def numbers(value: Any) -> list[Any] | None:
    """A list of numbers, also when it was written as JSON text (CSV has nothing else); None for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    kinds = (int, float)
    good = isinstance(value, list | tuple) and all(isinstance(one, kinds) and not isinstance(one, bool) for one in value)
    return list(value) if good else None
