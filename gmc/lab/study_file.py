"""A study of a model: a TOML file of grids, and a file of results that grows by one line a cell.

The same command goes on where it was stopped: a cell whose line is there is not computed again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gmc.config.file_kinds import require_file_of
from gmc.config.layers import read_toml
from gmc.errors import DataError, UsageError, plain_words
from gmc.store.files import append_jsonl, read_jsonl, strict_json, write_text


class Grid(BaseModel):
    """Base of one `[[grid]]` table: typed, immutable, and an unknown key is an error. command: which takes such files."""

    command: ClassVar[str]
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


AnyGrid = TypeVar("AnyGrid", bound=Grid)


def read_grids(path: Path, kind: type[AnyGrid]) -> list[AnyGrid]:
    """The grids of a study file. Raises `UsageError` for another command's file, else naming the file and the wrong key."""
    tables = read_tables(path, kind.command)
    return [make_grid(table, kind, f"{path}, grid {number}") for number, table in enumerate(tables, start=1)]


def read_tables(path: Path, command: str) -> list[Any]:
    """The tables of a study file of `command`, as they stand there. Raises as `read_grids`, but for wrong keys."""
    try:
        tree = read_toml(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; those that ship lie in recipes/lab of a checkout") from error
    require_file_of(command, tree, path)
    tables = tree.get("grid")
    if set(tree) != {"grid"} or not isinstance(tables, list) or not tables:
        raise UsageError(f"{path}: a study is one or more [[grid]] tables and nothing else")
    return tables


def make_grid(table: Mapping[str, Any], kind: type[AnyGrid], where: str) -> AnyGrid:
    """One grid. Raises `UsageError` naming where it stands, the first key that is wrong, and what is allowed."""
    try:
        return kind.model_validate(dict(table))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or "the grid"
        if problem["type"] == "extra_forbidden":
            raise UsageError(f"{where}: unknown key {key}; there are {', '.join(kind.model_fields)}") from error
        if problem["type"] == "missing":
            meaning = kind.model_fields[key].description if key in kind.model_fields else ""
            raise UsageError(f"{where}: {key} is missing{f' ({meaning})' if meaning else ''}; add a line {key} = …") from error
        raise UsageError(
            f"{where}: {key} = {problem['input']!r}: {plain_words(problem['msg'].removeprefix('Value error, '))}"
        ) from error


class ResultLines:
    """The lines of one results file, found again by their values of `keys`."""

    def __init__(self, path: Path | None, keys: Sequence[str]) -> None:
        """path: None keeps them in memory only. Raises `DataError` when the file is damaged or holds something else."""
        self._path, self._keys = path, keys
        self.records = [] if path is None else read_jsonl(path)
        for number, record in enumerate(self.records, start=1):
            if not isinstance(record, dict) or not set(keys) <= set(record):
                raise DataError(f"{path}, line {number}: not a result of this kind of study; name another file with --out")
        if path is not None and path.exists() and not path.read_bytes().endswith(b"\n"):  # a last line cut by a kill
            write_text(path, "".join(strict_json(record) + "\n" for record in self.records))
        self._done = {self._key(record): record for record in self.records}

    def find(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line of a cell, which may hold more than the keys; None when it is still to be computed."""
        return self._done.get(self._key(cell))

    def add(self, record: dict[str, Any]) -> None:
        """Append one line."""
        self.records.append(record)
        self._done[self._key(record)] = record
        if self._path is not None:
            append_jsonl(self._path, record)

    def _key(self, record: Mapping[str, Any]) -> str:
        return strict_json([record[key] for key in self._keys])


def rounded(value: float, digits: int = 6) -> float:
    """A number with so many significant digits, so that a results file stays small."""
    return float(f"{value:.{digits}g}")
