"""Plain trajectory importance weighting: the unbiased reference that every other rule trades against."""

import torch
from torch import Tensor

from gmc.estimators.base import LOG_RATIO_CLAMP
from gmc.estimators.baseline import TrajectoryEstimator
from gmc.estimators.batch import Batch


class ImportanceSampling(TrajectoryEstimator):
    """Weights a response by its trajectory ratio ρ_i, whatever its size."""

    name = "is"
    summary = "Plain trajectory importance weighting ρ: unbiased, unbounded variance"
    formula = "κ_i = ρ_i·A_i"
    reference = "Importance sampling; the uncapped member of Definition 1 in arXiv 2610.01896"
    evidence = "Textbook. log ρ is clamped at ±20, so it is unbiased only while |log ρ| stays below that."
    bounded = False

    def objective(self, batch: Batch) -> Tensor:
        """sg(ρ_i)·A_i·log π at every token of response i."""
        log_rho_B = batch.log_rho_B.detach().clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
        return torch.exp(log_rho_B)[:, None] * batch.advantages_B1 * batch.logp_BT
