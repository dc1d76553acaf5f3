"""What the convergence theory of arXiv 2610.01896 says of a delay distribution, with every hidden constant set to 1.

The bounds are orders of magnitude: the paper's constants are not known, and its step size is that of plain stochastic
gradient ascent, not of AdamW. Comparing two rules, or two delays under one rule, is what the numbers are good for.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class BoundTerms:
    """The three terms of the bound on the mean squared gradient over N updates, constants set to 1."""

    optimization: float
    """1 / (ηN)"""
    variance: float
    """(1 + ε) η"""
    delay: float
    """(1 + ε)³ η⁴ τ̄₄ / d(ε)², with d(ε) = log(1 + 2ε) for GMC and c_ε for TIC"""

    @property
    def total(self) -> float:
        return self.optimization + self.variance + self.delay


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


def bound_terms(divisor: float, *, eta: float, updates: int, epsilon: float, tau4: float) -> BoundTerms:
    """The bound for a rule with this divisor; eta: η, the theory's step size; tau4: τ̄₄, mean fourth power of the delay."""
    return BoundTerms(
        optimization=1 / (eta * updates),
        variance=(1 + epsilon) * eta,
        delay=(1 + epsilon) ** 3 * eta**4 * tau4 / divisor**2,
    )


def rate_factor(epsilon: float) -> float:
    """(c_ε / log(1 + 2ε))^(2/5) < 1: GMC's delay rate over TIC's once each step size is tuned.

    >>> round(rate_factor(0.28), 3)
    0.331
    """
    return float((tic_divisor(epsilon) / gmc_divisor(epsilon)) ** 0.4)


def near_policy_group_factor(group_size: int) -> float:
    """G^(−2/5): how GMC's delay term falls with the group size while all ratios stay close to 1."""
    return float(group_size**-0.4)


def largest_fourth_moment(updates: int) -> float:
    """N^(3/2): the order of the largest τ̄₄ that keeps the no-delay rate N^(−1/2), at η = N^(−1/2)."""
    return float(updates**1.5)


def vanishing_fourth_moment(updates: int) -> float:
    """N⁴: the order of τ̄₄ below which the bound still goes to zero, more slowly, at a step size tuned to the delay."""
    return float(updates) ** 4


def theory_record(*, tau4: float, eta: float, updates: int, epsilon: float, group_size: int) -> dict[str, Any]:
    """All of the above for one delay distribution, by name."""
    return {
        "constants": "set to 1",
        "eta": eta,
        "epsilon": epsilon,
        "updates": updates,
        "fourth_moment": tau4,
        "optimal_epsilon": optimal_epsilon(tau4, updates),
        "gmc": asdict(bound_terms(gmc_divisor(epsilon), eta=eta, updates=updates, epsilon=epsilon, tau4=tau4)),
        "tic": asdict(bound_terms(tic_divisor(epsilon), eta=eta, updates=updates, epsilon=epsilon, tau4=tau4)),
        "rate_factor": rate_factor(epsilon),
        "near_policy_group_factor": near_policy_group_factor(group_size),
        "largest_fourth_moment": largest_fourth_moment(updates),
        "keeps_no_delay_rate": tau4 <= largest_fourth_moment(updates),
        "bound_vanishes": tau4 < vanishing_fourth_moment(updates),
    }
