"""What every row of a shard must keep. The writer and the reader call the same function, so a legal file stays legal.

All checks are vectorized over the Arrow columns; a message is composed only after one fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from gmc.errors import DataError
from gmc.store.run_directory import ROLLOUT_NAME
from gmc.store.shards.rollout import LARGEST_REWARD, ShardMetadata
from gmc.store.shards.schema import FINISH_REASONS, LOGPROB_COLUMNS, NULLABLE_COLUMNS, SCHEMA, WHOLE_COLUMNS


@dataclass(frozen=True)
class ListColumn:
    """A list column as one flat array: row i holds `values[starts[i]:starts[i + 1]]`."""

    values: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]

    @property
    def lengths(self) -> np.ndarray[Any, Any]:
        return np.diff(self.starts)

    def row_of(self, position: int) -> tuple[int, int]:
        """The row of a flat position, and the position within that row."""
        row = int(np.searchsorted(self.starts, position, side="right")) - 1
        return row, position - int(self.starts[row])


def list_column(table: pa.RecordBatch, name: str) -> ListColumn | None:
    """A list column without nulls, or None when it is null in every row (a table of no rows has every column)."""
    column = table.column(name)
    if table.num_rows and column.null_count == table.num_rows:
        return None
    starts = column.offsets.to_numpy()
    return ListColumn(column.values.slice(starts[0], starts[-1] - starts[0]).to_numpy(zero_copy_only=False), starts - starts[0])


def sampled_lengths(table: pa.RecordBatch, responses: ListColumn) -> np.ndarray[Any, Any]:
    """The length of each response: its tokens but for those that its mask leaves out."""
    mask = table.column("response_mask")
    if mask.null_count == table.num_rows:
        return responses.lengths
    said = mask.is_valid().to_numpy(zero_copy_only=False)
    counts = np.cumsum([0, *mask.values.to_numpy(zero_copy_only=False)])
    starts = mask.offsets.to_numpy()
    return np.where(said, counts[starts[1:]] - counts[starts[:-1]], responses.lengths)


@dataclass(frozen=True)
class Check:
    """One table under test: `path` is its file, `cure` ends every message.

    `rows` gives the number of each table row in the file (a reader sorts before it checks), None when they agree;
    `context_tokens` how long prompt and response may be together, None for any length.
    """

    table: pa.RecordBatch
    metadata: ShardMetadata
    path: Path
    cure: str
    rows: Sequence[int] | None = None
    context_tokens: int | None = None

    def fail(self, row: int, column: str, problem: str) -> NoReturn:
        where = f"row {row if self.rows is None else self.rows[row]}"
        group, sample = (self.table.column(name)[row].as_py() for name in ("group", "sample"))
        raise DataError(f"{self.path}: {where} (group {group}, sample {sample}), column {column}: {problem}. {self.cure}")

    def fail_where(self, bad: np.ndarray[Any, Any], column: str, problem: str) -> None:
        """Fail at the first true row of `bad`; `{}` in the problem is the value there."""
        if bad.any():
            row = int(np.argmax(bad))
            self.fail(row, column, problem.format(repr(self.table.column(column)[row].as_py())))

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = self.table.column(name).to_numpy(zero_copy_only=False)
        return array

    def run(self) -> None:
        """Raise `DataError` naming file, row, column and cure at the first illegal value."""
        self._nulls()
        if self.table.num_rows == 0:
            return
        self._scalars()
        self._groups()
        responses = self._tokens()
        self._log_probabilities(responses)
        for name in ("response_mask", "token_versions"):
            self._per_token(name, responses)
        self._longest(responses)
        self._reward_parts()

    def _nulls(self) -> None:
        for name in SCHEMA.names:
            column = self.table.column(name)
            some = 0 < column.null_count < self.table.num_rows
            if name in WHOLE_COLUMNS and some:
                self.fail_where(
                    column.is_null().to_numpy(zero_copy_only=False),
                    name,
                    "null, while other rows have a value: all rows or none",
                )
            elif name not in WHOLE_COLUMNS and name not in NULLABLE_COLUMNS and column.null_count:
                self.fail_where(
                    column.is_null().to_numpy(zero_copy_only=False),
                    name,
                    "null, and this column must have a value in every row",
                )
            if pa.types.is_list(column.type):
                self._no_inner_null(name)

    def _scalars(self) -> None:
        for name, allowed in (("finish_reason", FINISH_REASONS), ("run_id", (self.metadata.run_id,))):
            unknown = set(self.table.column(name).unique().to_pylist()) - set(allowed)
            if unknown:
                bad = np.isin(self.table.column(name).to_numpy(zero_copy_only=False), list(unknown))
                self.fail_where(bad, name, f"{{}} is not {' or '.join(map(repr, allowed))}")
        for name in ("batch", "group", "sample", "policy_version"):
            self.fail_where(self.numbers(name) < 0, name, "{} is negative")
        batch = self.numbers("batch")
        self.fail_where(batch != batch[0], "batch", f"{{}}, while the first row has {batch[0]}: one launch batch a file")
        if named := ROLLOUT_NAME.fullmatch(self.path.name):
            for name, number in (("batch", int(named[1])), ("policy_version", int(named[2]))):
                self.fail_where(self.numbers(name) != number, name, f"{{}}, and the file's name says {number}")
        self.fail_where(~np.isfinite(self.numbers("reward")), "reward", "{} is not a finite number")
        self.fail_where(np.abs(self.numbers("reward")) > LARGEST_REWARD, "reward", f"{{}} is beyond ±{LARGEST_REWARD:g}")
        for name in ("launched_at", "ready_at"):
            if not self.table.column(name).null_count:
                self.fail_where(~np.isfinite(self.numbers(name)), name, "{} is not a finite number")

    def _groups(self) -> None:
        size, rows = self.metadata.group_size, self.table.num_rows
        if size < 1:
            raise DataError(f"{self.path}: group_size {size} in the shard's metadata must be at least 1. {self.cure}")
        group, sample = self.numbers("group"), self.numbers("sample")
        place = np.arange(rows)
        if rows % size or (group != place // size).any() or (sample != place % size).any():
            self._explain_groups(group, sample)
        first = place // size * size
        for name in ("policy_version", "problem_id"):
            values = self.numbers(name) if name == "policy_version" else _codes(self.table.column(name))
            self.fail_where(
                values != values[first], name, "{} differs from the first row of its group: one prompt, one version"
            )
        self.fail_where(
            _differs(self._lists("prompt_token_ids"), first), "prompt_token_ids", "differs within the group: one prompt a group"
        )

    def _explain_groups(self, group: np.ndarray[Any, Any], sample: np.ndarray[Any, Any]) -> NoReturn:
        size = self.metadata.group_size
        self.fail_where(sample >= size, "sample", f"{{}} is beyond the group size {size}")
        order = np.lexsort((sample, group))
        again = np.flatnonzero((np.diff(group[order]) == 0) & (np.diff(sample[order]) == 0))
        if again.size:
            self.fail(int(order[again[0] + 1]), "sample", "the same group and sample occur twice")
        groups, counts = np.unique(group, return_counts=True)
        short = np.flatnonzero(counts != size)
        if short.size:
            row = int(np.argmax(group == groups[short[0]]))
            self.fail(row, "group", f"the group is incomplete, {counts[short[0]]} of {size} samples are there")
        if groups[-1] != len(groups) - 1:
            missing = int(np.argmax(groups != np.arange(len(groups))))
            self.fail(int(np.argmax(group > missing)), "group", f"group {missing} is missing, groups must count up from 0")
        unordered = (group[1:] < group[:-1]) | ((group[1:] == group[:-1]) & (sample[1:] < sample[:-1]))
        self.fail(int(np.argmax(unordered)) + 1, "sample", "rows must be ordered by group, then sample")

    def _tokens(self) -> ListColumn:
        """Check the ids of prompts and responses; returns the responses."""
        self.fail_where(
            self._lists("prompt_token_ids").lengths == 0, "prompt_token_ids", "{} is empty, and a response follows some token"
        )
        for name in ("prompt_token_ids", "response_token_ids"):
            column = self._lists(name)
            bad = (column.values < 0) | (column.values >= self.metadata.vocabulary_size)
            if bad.any():
                row, token = column.row_of(int(np.argmax(bad)))
                value, last = column.values[np.argmax(bad)], self.metadata.vocabulary_size - 1
                self.fail(row, name, f"token id {value} at position {token} is outside the vocabulary (0 to {last})")
        self._context(column)
        return column

    def _longest(self, responses: ListColumn) -> None:
        max_tokens, lengths = self._max_tokens(), sampled_lengths(self.table, responses)
        if max_tokens is not None and (lengths > max_tokens).any():
            row = int(np.argmax(lengths > max_tokens))
            problem = f"{lengths[row]} tokens, more than max_tokens = {max_tokens} of the sampling settings"
            self.fail(row, "response_token_ids", problem)

    def _context(self, responses: ListColumn) -> None:
        lengths = self._lists("prompt_token_ids").lengths + responses.lengths
        if self.context_tokens is not None and (lengths > self.context_tokens).any():
            row = int(np.argmax(lengths > self.context_tokens))
            problem = f"{lengths[row]} tokens with its response, more than the model's context of {self.context_tokens}"
            self.fail(row, "prompt_token_ids", problem)

    def _max_tokens(self) -> int | None:
        text = self.metadata.sampling.get("max_tokens")
        if text is not None and not text.isdecimal():
            raise DataError(f"{self.path}: sampling.max_tokens {text!r} in the shard's metadata is not a number. {self.cure}")
        return None if text is None else int(text)

    def _lists(self, name: str) -> ListColumn:
        column = list_column(self.table, name)
        assert column is not None
        return column

    def _no_inner_null(self, name: str) -> None:
        if self.table.column(name).flatten().null_count:
            per_row = [row is not None and None in row for row in self.table.column(name).to_pylist()]
            self.fail(per_row.index(True), name, "a null inside the list")

    def _log_probabilities(self, responses: ListColumn) -> None:
        present = {kind for kind, name in LOGPROB_COLUMNS.items() if self.table.column(name).null_count == 0}
        declared = set(self.metadata.logprob_kinds)
        for kind in sorted(present ^ declared):
            state = "is filled, but not" if kind in present else "is empty, but"
            self.fail(0, LOGPROB_COLUMNS.get(kind, kind), f"{state} among the file's logprob_kinds")
        for name in (*LOGPROB_COLUMNS.values(), "trainer_entropies"):
            column = list_column(self.table, name)
            if column is None:
                continue
            wrong = column.lengths != responses.lengths
            if wrong.any():
                row = int(np.argmax(wrong))
                self.fail(row, name, f"{column.lengths[row]} values for {responses.lengths[row]} response tokens")
            bad = ~np.isfinite(column.values)
            if name != "trainer_entropies":
                bad |= column.values > 0
            if bad.any():
                row, token = column.row_of(int(np.argmax(bad)))
                value = float(column.values[np.argmax(bad)])
                rule = "an entropy is finite" if name == "trainer_entropies" else "a log-probability is finite and at most 0"
                self.fail(row, name, f"{value} at response token {token}, {rule}")

    def _per_token(self, name: str, responses: ListColumn) -> None:
        """A column with a value for each response token in the rows where it is not null."""
        said = self.table.column(name).is_valid().to_numpy(zero_copy_only=False)
        if not said.any():
            return
        column = self.table.column(name)
        starts = column.offsets.to_numpy()
        values = column.values.to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(said).tolist():
            own = values[starts[row] : starts[row + 1]]
            if len(own) != responses.lengths[row]:
                self.fail(row, name, f"{len(own)} values for {responses.lengths[row]} response tokens")
            if name == "response_mask" or not len(own):
                continue
            mask = self.table.column("response_mask")[row].as_py()
            sampled = own if mask is None else own[np.array(mask, dtype=bool)]
            version = self.table.column("policy_version")[int(row)].as_py()
            if len(sampled) and (sampled[0] != version or (np.diff(sampled) < 0).any()):
                self.fail(row, name, f"versions never fall and begin with policy_version {version}, and these do not")

    def _reward_parts(self) -> None:
        column = list_column(self.table, "reward_parts")
        names = self.metadata.reward_parts
        if column is None:
            return
        wrong = column.lengths != len(names)
        if wrong.any():
            row = int(np.argmax(wrong))
            self.fail(row, "reward_parts", f"{column.lengths[row]} values, and the file's record names {len(names)} parts")
        bad = np.isinf(column.values)
        if bad.any():
            self.fail(column.row_of(int(np.argmax(bad)))[0], "reward_parts", "an infinite reward")


def _codes(column: pa.Array) -> np.ndarray[Any, Any]:
    """Equal integers for equal texts."""
    codes: np.ndarray[Any, Any] = column.dictionary_encode().indices.to_numpy()
    return codes


def _differs(column: ListColumn, first: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether the list of each row differs from that of row `first[row]`."""
    lengths = column.lengths
    differs: np.ndarray[Any, Any] = lengths != lengths[first]
    if differs.any():
        return differs
    shift = np.repeat(column.starts[:-1] - column.starts[first], lengths)
    unequal = np.flatnonzero(column.values != column.values[np.arange(len(column.values)) - shift])
    differs[np.searchsorted(column.starts, unequal, side="right") - 1] = True
    return differs
