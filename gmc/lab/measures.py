"""One number a run: the score of its last policy, the mean over its curve of scores, the worst drop, the way to an accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gmc.evaluation.scores import main_score
from gmc.lab.results import RunRecord

Points = Sequence[tuple[int, float]]
"""(policy version, score), in order of versions."""


def is_binary(record: RunRecord) -> bool:
    """Whether the run's main scores are shares of right answers, and not means of some other reward."""
    return all(scores[main_score([*scores])].get("binary", True) for scores in record.scores.values())


def final_score(record: RunRecord) -> float | None:
    """The last policy's main score, each benchmark counting once; None for a run without an evaluation."""
    values = [scores[main_score([*scores])]["value"] for scores in record.scores.values()]
    return float(np.mean(values)) if values else None


def curve_points(record: RunRecord) -> Points:
    """The curve of scores: the mean over benchmarks at every version at which all of them were evaluated."""
    by_version: dict[int, list[float]] = {}
    for point in record.curve:
        by_version.setdefault(point["version"], []).append(_main_value(point["scores"]))
    most = max((len(values) for values in by_version.values()), default=0)
    whole = [version for version in sorted(by_version) if len(by_version[version]) == most]
    return [(version, float(np.mean(by_version[version]))) for version in whole]


def area(points: Points) -> float | None:
    """Mean height of the curve between its first and last version (trapezoids); None for fewer than two points."""
    if len(points) < 2:
        return None
    versions, scores = np.array(points).T
    return float(np.trapezoid(scores, versions) / (versions[-1] - versions[0]))


def worst_drop(points: Points) -> float | None:
    """The deepest fall below the best score so far; 0 for a curve that never falls, None for fewer than two points."""
    if len(points) < 2:
        return None
    scores = np.array([score for _, score in points])
    return float(np.max(np.maximum.accumulate(scores) - scores))


def updates_to(points: Points, level: float) -> float | None:
    """Updates until the curve, drawn with straight lines, first reaches `level`; None if it never does."""
    previous: tuple[int, float] | None = None
    for version, score in points:
        if score >= level:
            if previous is None:
                return float(version)
            before, low = previous
            return before + (version - before) * (level - low) / (score - low)
        previous = version, score
    return None


def measure(record: RunRecord, name: str) -> float | None:
    """ "final" or "area" of a finished run; None where it was not measured."""
    if not record.finished:
        return None
    return final_score(record) if name == "final" else area(curve_points(record))


def _main_value(scores: Mapping[str, Any]) -> float:
    return float(scores[main_score([*scores])])
