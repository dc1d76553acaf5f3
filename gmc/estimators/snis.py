"""Self-normalized importance weighting: trajectory ratios divided by their mean over the group."""

import torch
from torch import Tensor

from gmc.estimators.baseline import TrajectoryEstimator
from gmc.estimators.batch import Batch


class SelfNormalized(TrajectoryEstimator):
    """Weights a response by ρ_i/ρ̄, ρ̄ the group's mean trajectory ratio, so that a group's weights always average to 1.

    A group whose ratios are all small is scaled up, which no member of Definition 1 in arXiv 2610.01896 does. Where ρ̄ > 1+ε,
    gmc gives 1+ε times these weights.
    """

    name = "snis"
    summary = "Self-normalized importance weighting: trajectory ratios over their group's mean"
    formula = "κ_i = (ρ_i/ρ̄)·A_i, ρ̄ = mean of ρ over the group"
    reference = "Self-normalized importance sampling (Owen, Monte Carlo theory, methods and examples, section 9.2), by group"
    evidence = "Weight: textbook. Normalizing in the group of one prompt, and the loss normalizer: chosen as for gmc."
    scope = "group"

    def objective(self, batch: Batch) -> Tensor:
        """sg(G·softmax(log ρ)_i)·A_i·log π at every token of response i."""
        weight_PG = batch.group_size * torch.softmax(batch.log_rho_PG.detach(), dim=1)
        return weight_PG.reshape(-1, 1) * batch.advantages_B1 * batch.logp_BT
