"""Two results on the same problems, compared problem by problem."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gmc.errors import UsageError
from gmc.evaluation.results import Result
from gmc.evaluation.scores import ProblemScores, problem_scores
from gmc.evaluation.spec import differences
from gmc.evaluation.statistics import Estimate, FloatArray, McNemar, PairedDifference, estimate, mcnemar, paired_difference


@dataclass(frozen=True)
class ScoreComparison:
    """One score of both results. mcnemar: None unless each side has one right-or-wrong outcome a problem. binary: whether both
    are shares of right answers."""

    name: str
    first: Estimate
    second: Estimate
    difference: PairedDifference
    mcnemar: McNemar | None
    binary: bool


@dataclass(frozen=True)
class Comparison:
    """Every score both results have, and the settings in which they differ."""

    first: Result
    second: Result
    scores: tuple[ScoreComparison, ...]
    differing_settings: tuple[str, ...]


def compare(first: Result, second: Result, *, seed: int = 0) -> Comparison:
    """Paired comparison of two results, joined by problem id.

    "avg@n" and "maj@n" are compared also when n differs. Raises `UsageError` when the problems differ or no score is in both.
    """
    hashes = [result.record["problems"]["content_hash"] for result in (first, second)]
    if hashes[0] != hashes[1]:
        raise UsageError(
            f"{first.scores_path} and {second.scores_path} were evaluated on different problems "
            f"(content {hashes[0][:12]} and {hashes[1][:12]}), so they cannot be paired"
        )
    one, other = _scored(first), _scored(second)
    pairs = [(name, match) for name in one.scores if (match := _same_score(name, other)) is not None]
    if not pairs:
        raise UsageError(f"no score is in both results: {', '.join(one.scores)} against {', '.join(other.scores)}")
    settings = differences(first.record["spec"], second.record["spec"])
    settings += differences(first.record["versions"], second.record["versions"], "versions.")
    return Comparison(first, second, tuple(_compare_score(one, other, *pair, seed=seed) for pair in pairs), tuple(settings))


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain values, for `--json`."""
    return {
        "benchmark": comparison.first.record["benchmark"],
        "first": str(comparison.first.scores_path),
        "second": str(comparison.second.scores_path),
        "scores": {values.pop("name"): values for values in map(asdict, comparison.scores)},
        "differing_settings": list(comparison.differing_settings),
    }


def _scored(result: Result) -> ProblemScores:
    return problem_scores(result.samples(), result.record["spec"]["pass_k"], result.rewarded)


def _same_score(name: str, other: ProblemScores) -> str | None:
    """The other side's name of the same quantity: n may differ for avg and maj, k may not for pass."""
    if name in other.scores:
        return name
    kind, part = _kind(name)
    return next((each for each in other.scores if kind in ("avg", "maj") and _kind(each) == (kind, part)), None)


def _kind(name: str) -> tuple[str, str]:
    """What a score is without its n, and of which part of the reward: ("avg", "math") of "avg@4 math"."""
    whole, _, part = name.partition(" ")
    return whole.partition("@")[0], part


def _compare_score(one: ProblemScores, other: ProblemScores, name: str, match: str, *, seed: int) -> ScoreComparison:
    order = {problem_id: position for position, problem_id in enumerate(other.problem_ids)}
    if set(order) != set(one.problem_ids):
        raise UsageError("the two results hold different problem ids, so they cannot be paired")
    first_P: FloatArray = one.scores[name]
    second_P: FloatArray = other.scores[match][[order[problem_id] for problem_id in one.problem_ids]]
    binary = one.rewarded.is_binary(name) and other.rewarded.is_binary(match)
    outcomes = binary and all(np.all((scores == 0) | (scores == 1)) for scores in (first_P, second_P))
    single = one.samples[name] == other.samples[match] == 1
    return ScoreComparison(
        name if name == match else f"{name} / {match}",
        estimate(first_P, samples=one.samples[name], seed=seed, binary=binary),
        estimate(second_P, samples=other.samples[match], seed=seed, binary=binary),
        paired_difference(first_P, second_P, seed=seed),
        mcnemar(first_P == 1, second_P == 1) if outcomes and single else None,
        binary,
    )
