"""Scores and their uncertainty. Problems are the unit: samples of one problem are never counted as independent.

Shapes: P problems, N samples a problem. Every score is a mean of one number a problem, so every interval is a bootstrap that
draws whole problems with replacement.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gmc.errors import UsageError

FloatArray = NDArray[np.float64]
RESAMPLES = 10_000
LEVEL = 0.95
EQUAL = 1e-12
"""Relative difference below which values differ by rounding alone."""


@dataclass(frozen=True)
class Estimate:
    """A score with its 95 % interval; samples: n for each problem; problems: P."""

    value: float
    low: float
    high: float
    samples: int
    problems: int


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of the chance that k fresh samples hold a correct one: 1 − C(n−c, k)/C(n, k) (Chen et al. 2021).

    Raises `UsageError` when n < k: no estimate without bias exists then.
    """
    if not 1 <= k <= samples:
        raise UsageError(f"pass@{k} needs at least {k} samples a problem, there are {samples}; raise --n or lower --pass-k")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def majority_score(predictions: Sequence[str | None], correct: Sequence[bool]) -> float:
    """Chance that the most frequent answer of one problem is correct, ties broken at random.

    predictions: one answer a sample in a canonical form (equal texts are one answer); None, no answer, does not vote.
    """
    votes = Counter(prediction for prediction in predictions if prediction is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    leaders = {answer for answer, count in votes.items() if count == most}
    right = [is_right for prediction, is_right in zip(predictions, correct, strict=True) if prediction in leaders]
    return sum(right) / len(right)


def estimate(scores_P: FloatArray, *, samples: int, seed: int = 0, binary: bool = True) -> Estimate:
    """Mean of one score a problem with a percentile bootstrap over problems. binary: whether it is a share of right answers.

    When all problems score the same, resampling shows no spread at all; the interval is then Clopper and Pearson's for P
    trials, so that 0 of 30 is not reported as certain. Rewards that may be any number have no such bound: their interval is
    then the value itself.
    """
    count = len(scores_P)
    if count == 0:
        raise UsageError("a score needs at least one problem")
    value = float(np.mean(scores_P))
    if binary and np.all(scores_P == scores_P[0]):
        low, high = clopper_pearson(value * count, count)
    else:
        low, high = _percentiles(_resampled_means(scores_P, seed))
    return Estimate(value, low, high, samples, count)


def mean_estimate(scores: Sequence[FloatArray], *, samples: int, seed: int = 0, binary: bool = True) -> Estimate:
    """Mean over benchmarks of their scores (each benchmark counts once), problems resampled within each benchmark.

    Where all problems of a benchmark score the same, resampling shows no spread; its mean is then drawn from Jeffreys'
    posterior, so that 0 of 30 is not counted as certain. binary: as in `estimate`.
    """
    means = np.stack([_plausible_means(scores_P, seed + index, binary) for index, scores_P in enumerate(scores)])
    low, high = _percentiles(means.mean(axis=0))
    value = float(np.mean([np.mean(scores_P) for scores_P in scores]))
    return Estimate(value, min(low, value), max(high, value), samples, sum(len(scores_P) for scores_P in scores))


def clopper_pearson(successes: float, trials: int) -> tuple[float, float]:
    """Exact binomial 95 % interval; a fractional number of successes is interpolated by the beta distribution."""
    tail = (1 - LEVEL) / 2
    low = 0.0 if successes <= 0 else float(stats.beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes >= trials else float(stats.beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two scores on the same problems: mean(b − a), its 95 % interval, and a two-sided bootstrap p-value."""

    value: float
    low: float
    high: float
    p_value: float
    problems: int


def paired_difference(first_P: FloatArray, second_P: FloatArray, *, seed: int = 0) -> PairedDifference:
    """Paired bootstrap over problems of mean(second − first)."""
    if first_P.shape != second_P.shape or len(first_P) == 0:
        raise UsageError("a paired comparison needs the same problems on both sides")
    differences_P = second_P - first_P
    means = _resampled_means(differences_P, seed)
    low, high = _percentiles(means)
    tail = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    p_value = min(1.0, 2 * (int(tail) + 1) / (len(means) + 1))
    return PairedDifference(float(differences_P.mean()), low, high, p_value, len(first_P))


@dataclass(frozen=True)
class McNemar:
    """Problems that only one side solves, and the exact two-sided binomial p-value for "both sides are equally likely"."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first_P: NDArray[np.bool_], second_P: NDArray[np.bool_]) -> McNemar:
    """Exact McNemar test on one right-or-wrong outcome a problem for each side."""
    only_first = int(np.count_nonzero(first_P & ~second_P))
    only_second = int(np.count_nonzero(second_P & ~first_P))
    discordant = only_first + only_second
    p_value = 1.0 if discordant == 0 else float(stats.binomtest(only_first, discordant, 0.5).pvalue)
    return McNemar(only_first, only_second, p_value)


def _plausible_means(scores_P: FloatArray, seed: int, binary: bool) -> FloatArray:
    if not binary or np.any(scores_P != scores_P[0]):
        return _resampled_means(scores_P, seed)
    right = float(scores_P.sum())
    draws: FloatArray = np.random.default_rng(seed).beta(right + 0.5, len(scores_P) - right + 0.5, size=RESAMPLES)
    return draws


def _resampled_means(scores_P: FloatArray, seed: int) -> FloatArray:
    count = len(scores_P)
    means: FloatArray = _resamples(count, seed).astype(np.float64) @ scores_P / count
    return means


@lru_cache(maxsize=1)
def _resamples(count: int, seed: int) -> NDArray[Any]:
    """How often each resample has each problem. All scores of a benchmark ask for the same ones, and drawing takes longest."""
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    return draws.astype(np.min_scalar_type(count))


def _percentiles(means: FloatArray) -> tuple[float, float]:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return float(low), float(high)


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation of one value a training run; None where runs say nothing of it: fewer than two, or all equal.

    Equal values come from scores on a coarse grid, or from what no seed changes; an interval of no width would claim certainty.
    """
    if len(values) < 2 or np.ptp(values) <= EQUAL * np.max(np.abs(values)):
        return None
    return float(np.std(values, ddof=1))


def seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean of one value a training run; None where it cannot be estimated (see `spread`)."""
    count, mean, deviation = len(values), float(np.mean(values)), spread(values)
    if deviation is None:
        return None
    reach = float(stats.t.ppf(1 - (1 - LEVEL) / 2, count - 1)) * deviation / count**0.5
    return mean - reach, mean + reach
