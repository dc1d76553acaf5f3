"""What the rest of gmc knows of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One question with its gold answer (text as it stood in the file; numbers are never reformatted).

    problem_id: stable within its source, unique; kind: an optional label (subject, level) carried into evaluation files.
    """

    problem_id: str
    question: str
    answer: str
    kind: str = ""


@dataclass(frozen=True)
class ProblemSet:
    """Problems in file order, with what a result file must say about them.

    source: what the user named; content_hash: SHA-256 over ids, questions and answers; notes: one line each for what was
    refused, duplicated or in conflict (empty when nothing was).
    """

    source: str
    problems: Sequence[Problem]
    content_hash: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.problems)
