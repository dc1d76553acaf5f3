"""What the convergence theory of arXiv 2610.01896 says of a delay distribution, with every hidden constant set to 1.

The bounds are orders of magnitude: the paper's constants are not known, and its step size is that of plain stochastic
gradient ascent, not of AdamW. Comparing two rules, or two delays under one rule, is what the numbers are good for.
"""

import functools
import math
from typing import Any


def optimal_epsilon(tau4: float, updates: int, k: float = 1.0) -> float:
    """ε* = k τ̄₄^(1/7) N^(−3/14), the order of the cap that minimizes the bound (Corollary 1).

    >>> round(optimal_epsilon(256.0**4, 800), 3)
    5.676
    """
    return float(k * tau4 ** (1 / 7) * updates ** (-3 / 14))


def gmc_divisor(epsilon: float) -> float:
    """log(1 + 2ε): removed mass ≤ KL / log(1 + 2ε)."""
    return math.log1p(2 * epsilon)


def tic_divisor(epsilon: float) -> float:
    """c_ε = log(1 + ε) − ε / (1 + ε)."""
    return math.log1p(epsilon) - epsilon / (1 + epsilon)


def bound_terms(divisor: float, *, eta: float, updates: int, epsilon: float, tau4: float) -> dict[str, float]:
    """The three terms of the bound on the mean squared gradient over N updates: 1/(ηN), (1+ε)η and (1+ε)³η⁴τ̄₄/d(ε)².

    divisor: d(ε), log(1 + 2ε) for GMC and c_ε for TIC; eta: η, the theory's step size; tau4: τ̄₄, mean delay⁴.
    """
    return {
        "optimization": 1 / (eta * updates),
        "variance": (1 + epsilon) * eta,
        "delay": (1 + epsilon) ** 3 * eta**4 * tau4 / divisor**2,
    }


def rate_factor(epsilon: float) -> float:
    """(c_ε / log(1 + 2ε))^(2/5) < 1: GMC's delay rate over TIC's once each step size is tuned.

    >>> round(rate_factor(0.28), 3)
    0.331
    """
    return float((tic_divisor(epsilon) / gmc_divisor(epsilon)) ** 0.4)


def theory_record(*, tau4: float, eta: float, updates: int, epsilon: float, group_size: int) -> dict[str, Any]:
    """All of the above for one delay distribution, by name.

    near_policy_group_factor: how GMC's delay term falls with the group size while all ratios stay close to 1.
    largest_fourth_moment: the order of the largest τ̄₄ that keeps the no-delay rate N^(−1/2), at η = N^(−1/2). bound_vanishes:
    below N⁴ the bound still goes to zero, more slowly, at a step size tuned to the delay.
    """
    bound = functools.partial(bound_terms, eta=eta, updates=updates, epsilon=epsilon, tau4=tau4)
    largest = updates**1.5
    return {
        "constants": "set to 1",
        "eta": eta,
        "epsilon": epsilon,
        "updates": updates,
        "fourth_moment": tau4,
        "optimal_epsilon": optimal_epsilon(tau4, updates),
        "gmc": bound(gmc_divisor(epsilon)),
        "tic": bound(tic_divisor(epsilon)),
        "rate_factor": rate_factor(epsilon),
        "near_policy_group_factor": group_size**-0.4,
        "largest_fourth_moment": largest,
        "keeps_no_delay_rate": tau4 <= largest,
        "bound_vanishes": tau4 < float(updates) ** 4,
    }
