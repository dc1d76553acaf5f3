"""What the rest of gmc knows of a data set."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gmc.store.files import strict_json


@dataclass(frozen=True)
class Problem:
    """One question with its gold answer (text as it stood in the file; numbers are never reformatted).

    problem_id: stable within its source, unique; kind: an optional label (subject, level) carried into evaluation files.
    fields: every column of its row as plain values, for the reward. refused: why no gold answer could be read from the row,
    whose answer is then as it stood there or empty; "" where one was read.
    """

    problem_id: str
    question: str
    answer: str
    kind: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    refused: str = ""


@dataclass(frozen=True)
class ProblemSet:
    """Problems in file order, with what a result file must say about them.

    source: what the user named; notes: one line each for what was refused, duplicated or in conflict (empty when nothing was).
    """

    source: str
    problems: Sequence[Problem]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.problems)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) over ids, questions and answers in order, one JSON array a line: two files hold the same problems."""
        digest = hashlib.sha256()
        for problem in self.problems:
            digest.update(strict_json([problem.problem_id, problem.question, problem.answer]).encode() + b"\n")
        return digest.hexdigest()

    def keep(self, problems: Sequence[Problem], note: str) -> "ProblemSet":
        """Only these of the problems, with a note on why."""
        return replace(self, problems=tuple(problems), notes=(*self.notes, note))
