"""What the convergence theory of arXiv 2610.01896 says of a delay distribution, with every hidden constant set to 1.

The bounds are orders of magnitude: the paper's constants are not known, and its step size is that of plain stochastic
gradient ascent, not of AdamW. Comparing two rules, or two delays under one rule, is what the numbers are good for.
"""

import math
from collections.abc import Callable
from typing import Any

Divisor = Callable[[float], float]
"""d(ε) in the bound: removed mass ≤ KL / d(ε)."""

_LOG_EPSILON = (-25.0, 10.0)
"""Between these the minimizing ε is looked for; where no delay pushes it up, it is 0."""


def optimal_epsilon(tau4: float, updates: int) -> float | None:
    """ε* = min{1, τ̄₄^(1/7) N^(−3/14)}, the order of the best cap (Corollary 1); None where it does not hold, τ̄₄ > N^(3/2).

    The formula reaches 1 at the end of its range. Beyond, the bound gets worse where it points: at a constant delay of 256
    and 800 updates it says 5.7, at which the bound is 4.4 times that at 0.28.

    >>> round(optimal_epsilon(8.0**4, 800), 3), optimal_epsilon(256.0**4, 800)
    (0.783, None)
    """
    if tau4 > largest_fourth_moment(updates):
        return None
    return float(min(1.0, tau4 ** (1 / 7) * updates ** (-3 / 14)))


def largest_fourth_moment(updates: int) -> float:
    """N^(3/2), the order of the largest τ̄₄ that keeps the no-delay rate N^(−1/2), at η = N^(−1/2).

    A constant delay of 12 has it at 800 updates:

    >>> 12**4 < largest_fourth_moment(800) < 13**4
    True
    """
    return float(updates**1.5)


def gmc_divisor(epsilon: float) -> float:
    """log(1 + 2ε): removed mass ≤ KL / log(1 + 2ε)."""
    return math.log1p(2 * epsilon)


def tic_divisor(epsilon: float) -> float:
    """c_ε = log(1 + ε) − ε / (1 + ε)."""
    return math.log1p(epsilon) - epsilon / (1 + epsilon)


DIVISORS: dict[str, Divisor] = {"gmc": gmc_divisor, "tic": tic_divisor}


def bound_terms(divisor: Divisor, *, eta: float, updates: int, epsilon: float, tau4: float) -> dict[str, float]:
    """The three terms of the bound on the mean squared gradient over N updates: 1/(ηN), (1+ε)η and (1+ε)³η⁴τ̄₄/d(ε)².

    divisor: d; eta: η, the theory's step size; epsilon: ε, above 0; tau4: τ̄₄, mean delay⁴.
    """
    return {
        "optimization": 1 / (eta * updates),
        "variance": (1 + epsilon) * eta,
        "delay": (1 + epsilon) ** 3 * eta**4 * tau4 / divisor(epsilon) ** 2,
    }


def minimizing_epsilon(divisor: Divisor, *, eta: float, updates: int, tau4: float) -> float:
    """The ε at which the sum of the three terms is smallest, found numerically; 0 without delay.

    For long delays it no longer depends on them: (1+ε)³/d(ε)² alone is smallest at 0.767 for GMC and 2.084 for TIC.
    """
    from scipy.optimize import minimize_scalar

    if tau4 == 0:
        return 0.0

    def bound(log_epsilon: float) -> float:
        terms = bound_terms(divisor, eta=eta, updates=updates, epsilon=math.exp(log_epsilon), tau4=tau4)
        return terms["variance"] + terms["delay"]

    found = minimize_scalar(bound, bounds=_LOG_EPSILON, method="bounded", options={"xatol": 1e-9})
    return math.exp(float(found.x))


def rate_factor(epsilon: float) -> float:
    """(c_ε / log(1 + 2ε))^(2/5) < 1: GMC's delay rate over TIC's at one ε, once each step size is tuned.

    >>> round(rate_factor(0.28), 3)
    0.331
    """
    return float((tic_divisor(epsilon) / gmc_divisor(epsilon)) ** 0.4)


def theory_record(*, tau4: float, eta: float, updates: int, epsilon: float, group_size: int) -> dict[str, Any]:
    """All of the above for one delay distribution, by name.

    gmc, tic: terms of the bound at `epsilon`, their sum, and the cap that minimizes it; optimal_epsilon: None outside its
    range. near_policy_group_factor: how GMC's delay term falls with the group size while all ratios stay close to 1.
    """
    return {
        "constants": "set to 1",
        "eta": eta,
        "epsilon": epsilon,
        "updates": updates,
        "fourth_moment": tau4,
        "optimal_epsilon": optimal_epsilon(tau4, updates),
        **{
            rule: _rule_record(divisor, eta=eta, updates=updates, epsilon=epsilon, tau4=tau4)
            for rule, divisor in DIVISORS.items()
        },
        "rate_factor": rate_factor(epsilon),
        "near_policy_group_factor": group_size**-0.4,
        "largest_fourth_moment": largest_fourth_moment(updates),
        "keeps_no_delay_rate": tau4 <= largest_fourth_moment(updates),
    }


def _rule_record(divisor: Divisor, *, eta: float, updates: int, epsilon: float, tau4: float) -> dict[str, float]:
    terms = bound_terms(divisor, eta=eta, updates=updates, epsilon=epsilon, tau4=tau4)
    minimizing = minimizing_epsilon(divisor, eta=eta, updates=updates, tau4=tau4)
    return {**terms, "sum": sum(terms.values()), "minimizing_epsilon": minimizing}
