"""From rewarded samples to scores: avg@n, pass@k, maj@n and greedy, each with its interval, and what went wrong."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gmc.errors import DataError
from gmc.evaluation.majority import answer_key
from gmc.evaluation.results import Counts, Result
from gmc.evaluation.rewarded import MATH, Rewarded
from gmc.evaluation.samples import GREEDY, SAMPLED, Sample
from gmc.evaluation.statistics import Estimate, FloatArray, estimate, majority_score, mean_estimate, pass_at_k


@dataclass(frozen=True)
class ProblemScores:
    """Scores of one evaluation, one number a problem under each name, in the order of `problem_ids`.

    Names carry n and k: "avg@16", "maj@16", "pass@4", "greedy"; where a reward has several parts, "avg@16 math" is the mean of
    one. samples: n under each name. rewarded: which of them are shares of right answers.
    """

    problem_ids: tuple[str, ...]
    scores: dict[str, FloatArray]
    samples: dict[str, int]
    rewarded: Rewarded = MATH


def problem_scores(
    samples: Sequence[Sample],
    pass_k: Sequence[int] = (),
    rewarded: Rewarded = Rewarded(),
) -> ProblemScores:
    """Score every problem. Only rewards of 0 and 1 have pass@k and maj@n.

    Raises `DataError` when a problem lacks samples, `UsageError` for a k above n, and for pass@k of other rewards.
    """
    if pass_k:
        rewarded.require_binary("--pass-k")
    sampled, greedy = _by_problem(samples, SAMPLED), _by_problem(samples, GREEDY)
    problem_ids = tuple(dict.fromkeys(sample.problem_id for sample in samples))
    scores: dict[str, FloatArray] = {}
    counts: dict[str, int] = {}

    def add(name: str, n: int, values: list[float]) -> None:
        scores[name], counts[name] = np.array(values, dtype=np.float64), n

    if sampled:
        n = _samples_each(sampled, problem_ids)
        rows = [sampled[problem_id] for problem_id in problem_ids]
        right = [math.fsum(sample.reward for sample in row) for row in rows]
        add(f"avg@{n}", n, [count / n for count in right])
        for k in pass_k:
            add(f"pass@{k}", n, [pass_at_k(n, int(count), k) for count in right])
        if n > 2 and rewarded.binary:  # of two votes that differ one wins by chance: maj@2 is avg@2
            add(
                f"maj@{n}",
                n,
                [majority_score([answer_key(s.prediction) for s in row], [s.reward == 1 for s in row]) for row in rows],
            )
        for index, label in enumerate(rewarded.labels if len(rewarded.labels) > 1 else ()):
            add(f"avg@{n} {label}", n, [math.fsum(_part(sample, index) for sample in row) / n for row in rows])
    if greedy:
        if _samples_each(greedy, problem_ids) != 1:
            raise DataError("greedy decoding is one response a problem, and the samples hold several")
        add("greedy", 1, [greedy[problem_id][0].reward for problem_id in problem_ids])
        for index, label in enumerate(rewarded.labels if len(rewarded.labels) > 1 else ()):
            add(f"greedy {label}", 1, [_part(greedy[problem_id][0], index) for problem_id in problem_ids])
    return ProblemScores(problem_ids, scores, counts, rewarded)


def _part(sample: Sample, index: int) -> float:
    """What a part of the reward gives; 0 where it does not apply, as in the sum."""
    return 0.0 if math.isnan(sample.reward_parts[index]) else sample.reward_parts[index]


def score_estimates(scored: ProblemScores, seed: int) -> dict[str, Estimate]:
    """Each score's mean over problems with its 95 % interval."""
    return {
        name: estimate(values, samples=scored.samples[name], seed=seed, binary=scored.rewarded.is_binary(name))
        for name, values in scored.scores.items()
    }


def main_score(names: Sequence[str]) -> str:
    """The score that stands for a benchmark: avg@n, or else greedy, or else the first."""
    return next((name for name in names if name.startswith("avg@")), "greedy" if "greedy" in names else names[0])


def mean_score(results: Sequence[Result]) -> dict[str, Estimate]:
    """Mean over benchmarks of avg@n and of greedy, where every result has it; each benchmark counts once.

    n may differ between benchmarks; the estimate carries the smallest.
    """
    scored = [problem_scores(result.samples(), (), result.rewarded) for result in results]
    means = {}
    for kind in ("avg", "greedy"):
        names = [next((name for name in each.scores if _is_kind(name, kind)), None) for each in scored]
        chosen = [(each, name) for each, name in zip(scored, names, strict=True) if name is not None]
        if len(chosen) == len(scored):
            means[f"mean {kind}"] = mean_estimate(
                [each.scores[name] for each, name in chosen],
                samples=min(each.samples[name] for each, name in chosen),
                binary=all(each.rewarded.is_binary(name) for each, name in chosen),
            )
    return means


def _is_kind(name: str, kind: str) -> bool:
    """Whether a score is of a kind ("avg", "greedy") and of the whole reward."""
    return " " not in name and name.partition("@")[0] == kind


def count_outcomes(samples: Sequence[Sample]) -> Counts:
    """Shares and counts over responses (at least one)."""
    total = len(samples)
    statuses = [sample.status for sample in samples]
    return Counts(
        responses=total,
        truncated_share=sum(sample.finish_reason == "length" for sample in samples) / total,
        unparseable_share=statuses.count("unparseable") / total,
        timeouts=statuses.count("timeout"),
        crashes=statuses.count("crash"),
        mean_response_tokens=sum(sample.sampled_tokens for sample in samples) / total,
    )


def _by_problem(samples: Sequence[Sample], decoding: str) -> dict[str, list[Sample]]:
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.decoding == decoding:
            grouped.setdefault(sample.problem_id, []).append(sample)
    return grouped


def _samples_each(grouped: dict[str, list[Sample]], problem_ids: Sequence[str]) -> int:
    """The common number of samples a problem; a score over fewer would be divided by the wrong n."""
    counts = {problem_id: len({sample.sample for sample in grouped.get(problem_id, [])}) for problem_id in problem_ids}
    n = max(counts.values())
    for problem_id, count in counts.items():
        rows = len(grouped.get(problem_id, []))
        if count != n or rows != n:
            raise DataError(f"problem {problem_id} has {rows} samples ({count} different) where others have {n}")
    return n
