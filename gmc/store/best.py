"""The policy that scored best on held-out problems, as the metrics of the updates tell it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HELDOUT = "heldout/score"
"""The metric: the score of the policy that the update made."""


@dataclass(frozen=True)
class Scored:
    """A policy version and its score on the held-out problems."""

    version: int
    score: float


def heldout_scores(records: Iterable[Mapping[str, Any]]) -> list[Scored]:
    """Every score along the way, from the records of metrics.jsonl, in order of versions."""
    return [
        Scored(record["update"] + 1, float(record[HELDOUT]))
        for record in records
        if isinstance(record.get(HELDOUT), int | float)
    ]


def best_of(scores: Iterable[Scored]) -> Scored | None:
    """The best score, of equal ones the earliest; None where nothing was scored."""
    return max(scores, key=lambda scored: (scored.score, -scored.version), default=None)
