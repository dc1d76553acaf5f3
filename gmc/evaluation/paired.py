"""Arms that share seeds, compared seed by seed: Student's interval of the difference, and Holm's correction over a family."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from gmc.evaluation.statistics import spread


@dataclass(frozen=True)
class Paired:
    """Mean of b − a over seeds, half the width of its 95 % interval and the two-sided p-value of Student's test.

    reach is None where the spread cannot be estimated: for a single seed, and where all differences are equal. Then p_value is
    1 where they are zero, and None else.
    """

    mean: float
    reach: float | None
    p_value: float | None
    seeds: int


def paired(first_S: Sequence[float], second_S: Sequence[float]) -> Paired:
    """second − first, seed by seed. Equal pairs throughout give p = 1. Raises `ValueError` for different or no seeds."""
    if len(first_S) != len(second_S) or not len(first_S):
        raise ValueError("a paired comparison needs the same seeds on both sides")
    difference_S = np.asarray(second_S, dtype=float) - np.asarray(first_S, dtype=float)
    count, mean = len(difference_S), float(difference_S.mean())
    deviation = spread(difference_S.tolist())
    if deviation is None:
        return Paired(mean, None, 1.0 if count > 1 and mean == 0 else None, count)
    error = deviation / count**0.5
    reach = float(stats.t.ppf(0.975, count - 1)) * error
    return Paired(mean, reach, float(2 * stats.t.sf(abs(mean) / error, count - 1)), count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: the chance of any false verdict in the family stays below the level.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
