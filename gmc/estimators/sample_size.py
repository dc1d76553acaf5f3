"""The effective sample size of weighted responses, as a share of their number: (Σw)²/(n·Σw²)."""

import math

from torch import Tensor


def ess_share(weight_B: Tensor) -> float:
    """Of weights of any sign; 0 without any weight."""
    squared = float((weight_B**2).sum())
    return float(weight_B.sum()) ** 2 / (len(weight_B) * squared) if squared > 0 else 0.0


def log_ess_share(log_weight_B: Tensor) -> float:
    """Its logarithm, from the logarithms of weights; 0 when all are equal.

    In the log domain 2·lse(ℓ) − lse(2ℓ) no small constant is needed in the denominator; one would win against ratios of long
    responses.
    """
    log_ess = 2 * log_weight_B.logsumexp(0) - (2 * log_weight_B).logsumexp(0)
    return float(log_ess) - math.log(log_weight_B.numel())
