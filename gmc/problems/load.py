"""One way in for every source of problems: the built-in arithmetic, a file, or a data set of the hub."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from gmc.errors import DataError, UsageError, no_file
from gmc.grading.grade import gold_problem
from gmc.problems import fields
from gmc.problems.arithmetic import Split, arithmetic_problems
from gmc.problems.base import Problem, ProblemSet
from gmc.problems.checks import find_repetitions
from gmc.problems.hub import read_hub_rows, require_data_set
from gmc.problems.readers import READERS, read_rows
from gmc.problems.rows import Row

Prepare = Callable[[Problem], Problem]
"""Gives the problem as a reward wants it; raises `DataError` with the reason to refuse its row."""

ARITHMETIC_COUNTS = {"train": 5_000, "eval": 500}


def mathematical(problem: Problem) -> Problem:
    """The problem, if its gold answer can be graded as mathematics. Raises `DataError` with the reason."""
    reason = problem.refused or gold_problem(problem.answer)
    if reason:
        raise DataError(reason)
    return problem


def load_problems(
    source: str,
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
    split: str | None = None,
    seed: int = 0,
    count: int | None = None,
    prepare: Prepare = mathematical,
    needs_answer: bool = True,
) -> ProblemSet:
    """Load the problems of a source.

    source: "arithmetic" or "arithmetic:eval" (generated from `seed`), a file (.jsonl, .json, .parquet, .csv), a folder of data
    files, or a hub name, "owner/name" or "owner/name:config". question_field, answer_field: fields of another name than the
    known ones; a dot goes into a nested object. count: only the first problems; for the arithmetic, how many to generate.
    prepare: the reward's own; needs_answer: whether a file without a field for answers is refused.

    Rows without a usable question, and those that `prepare` refuses (by default for their gold answer), are left out and
    counted in `notes`, with duplicates and conflicts. Raises
    `DataError` when a row lacks the fields or nothing is left, `UsageError` for an unknown source.
    """
    if count is not None and count < 1:
        raise UsageError(f"{source}: count {count}: ask for at least one problem")
    name, _, part = source.partition(":")
    if name == "arithmetic":
        return _arithmetic(source, part or split or "train", count, seed, prepare)
    rows, origin = _read(source, split)
    problems, notes = _problems(rows, origin, question_field, answer_field, prepare, needs_answer)
    return problem_set(origin, problems[:count], notes)


def problem_set(source: str, problems: Sequence[Problem], notes: Iterable[str] = ()) -> ProblemSet:
    """A `ProblemSet` with its hash and, after `notes`, what it repeats or contradicts."""
    return ProblemSet(source, tuple(problems), (*notes, *_repetition_notes(problems)))


def _arithmetic(source: str, split: str, count: int | None, seed: int, prepare: Prepare) -> ProblemSet:
    if split not in ARITHMETIC_COUNTS:
        raise UsageError(f"{source}: the arithmetic has the parts train and eval, not {split!r}")
    problems = arithmetic_problems(cast(Split, split), count or ARITHMETIC_COUNTS[split], seed)
    try:
        return ProblemSet(f"arithmetic:{split}", tuple(prepare(problem) for problem in problems))
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def require_source(source: str) -> None:
    """Raise `UsageError` for what can be no source of problems, `DataError` for a hub name that is out of reach."""
    if source.partition(":")[0] != "arithmetic" and not _is_file(source) and not Path(source).is_dir():
        require_data_set(source)


def _read(source: str, split: str | None) -> tuple[list[Row], str]:
    if _is_file(source):
        if split is not None:
            raise UsageError(f"--split {split}: {source} is one file and has no splits; leave --split out")
        return read_rows(Path(source)), source
    rows, chosen = read_hub_rows(source, split=split)
    return rows, f"{source}:{chosen}"


def _is_file(source: str) -> bool:
    """Whether the source is a file, or else what `read_hub_rows` takes. Raises `UsageError` for what is neither."""
    path = Path(source)
    if not source.strip("\0 \t\r\n"):
        raise UsageError("--problems is empty; give 'arithmetic', a file, or a hub name (owner/name)")
    if path.is_file():
        return True
    looks_like_file = path.suffix.lower() in READERS or source.startswith(("/", "./", "../", "~"))
    if re.search(r"\[.*\]$", source):
        raise UsageError(f"{source}: slices are not supported; name the file and limit the number of problems instead")
    if path.is_dir() or (not looks_like_file and re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", source)):
        return False
    if looks_like_file or path.exists():
        raise UsageError(f"{source}: {no_file(path)}")
    raise UsageError(f"{source}: not 'arithmetic', not a file here, and not a hub name (owner/name)")


def _problems(
    rows: list[Row],
    source: str,
    question_field: str | None,
    answer_field: str | None,
    prepare: Prepare,
    needs_answer: bool,
) -> tuple[list[Problem], list[str]]:
    """The rows that are problems, in order, and notes on the others."""
    problems: list[Problem] = []
    refused: dict[str, list[str]] = {}
    for row in rows:
        where = f"{source}, {row.place}"
        try:
            question = fields.find_question(row, question_field, where)
            answer, unread = _answer(row, answer_field, where, needs_answer)
            label, kind = fields.find_label(row, fields.ID_FIELDS), fields.find_label(row, fields.KIND_FIELDS)
            _require_unicode(question, answer, label, kind)
            problems.append(_prepared(Problem(label, question, answer, kind, fields.plain(row.values), unread), prepare))
        except fields.RefusedRowError as error:
            refused.setdefault(str(error), []).append(row.place)
        except fields.NoFieldError as error:
            others = sum(any(fields.lookup(other.values, name)[0] for name in error.names) for other in rows)
            if 2 * others <= len(rows):  # another name, rather than a slip in a row
                raise
            cure = f"{others} of {len(rows)} rows have it: fix {row.place}, or take it out"
            raise DataError(f"{error.missing}; {cure}") from error
    notes = [f"{_rows(len(places))} refused: {reason} ({_some(places)})" for reason, places in refused.items()]
    if notes:
        notes.insert(0, f"{_rows(len(rows))} read, {len(problems)} kept")
    if not problems:
        raise DataError(f"{source}: no usable problem; {'; '.join(notes)}")
    unused = sum(1 for row in rows if fields.find_label(row, ("error",)))
    if unused:
        notes.append(f"{_rows(unused)} with a tolerance (field error), which is not used: answers are compared exactly")
    return _with_unique_ids(problems), notes


def _answer(row: Row, field: str | None, where: str, needed: bool) -> tuple[str, str]:
    """(gold answer, why none could be read). Raises `DataError` for a field that is wanted and not there."""
    try:
        return fields.find_answer(row, field, where), ""
    except fields.RefusedRowError as error:
        return fields.raw_answer(row, field, where), str(error)
    except DataError as error:
        if needed or field is not None:
            raise
        return "", str(error)


def _prepared(problem: Problem, prepare: Prepare) -> Problem:
    try:
        return prepare(problem)
    except DataError as error:
        raise fields.RefusedRowError(str(error)) from error


def _require_unicode(*texts: str) -> None:
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise fields.RefusedRowError("a lone surrogate, which no file can hold as UTF-8") from error


def _with_unique_ids(problems: list[Problem]) -> list[Problem]:
    """The file's own ids where each row has one of its own; else ids from the question, so that they survive reordering."""
    if len({problem.problem_id for problem in problems}) == len(problems) and all(problem.problem_id for problem in problems):
        return problems
    seen: dict[str, int] = {}
    named = []
    for problem in problems:
        digest = hashlib.sha256(problem.question.encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        suffix = f"-{seen[digest]}" if seen[digest] > 1 else ""
        named.append(replace(problem, problem_id=f"q-{digest}{suffix}"))
    return named


def _repetition_notes(problems: Sequence[Problem]) -> list[str]:
    found = find_repetitions(problems)
    notes = []
    if found.duplicates:
        notes.append(f"{_rows(len(found.duplicates))} repeating an earlier problem: {found.distinct} distinct problems")
    if found.conflicts:
        pairs = [f"{first} and {second}" for first, second in found.conflicts]
        notes.append(f"{_rows(len(found.conflicts))} with another answer to an earlier question ({_some(pairs)})")
    boxed = [problem.problem_id for problem in problems if f"\\boxed{{{problem.answer}}}" in problem.question]
    if boxed:
        notes.append(f"{_rows(len(boxed))} whose question already holds the boxed answer ({_some(boxed)})")
    return notes


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _some(items: list[str], most: int = 3) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")
