"""Trajectory-level importance correction: a response whose ratio exceeds 1 + ε is left out."""

import math

import torch
from torch import Tensor

from gmc.estimators.batch import Batch
from gmc.estimators.epsilon import CappingEstimator, EpsilonSettings
from gmc.estimators.kl import KLEstimator, KLSettings


class TIC(KLEstimator, CappingEstimator):
    """Weights a response by ρ_i when ρ_i ≤ 1+ε and drops it otherwise, for both signs of the advantage.

    Not a PPO-style min: for a negative advantage that would keep the very ratios excluded here. With `kl` above 0, β·k3 to the
    initial policy is subtracted at each token.
    """

    name = "tic"
    summary = "Trajectory importance correction: ρ where ρ ≤ 1+ε, else nothing"
    formula = "κ_i = 1{ρ_i ≤ 1+ε}·ρ_i·A_i"
    reference = "Pang, Jin, arXiv 2508.02833; as the baseline of arXiv 2610.01896"
    evidence = (
        "Indicator form: stated by 2610.01896, consistent with a third-party reading, whose configuration has a KL penalty of "
        "0.01; 2610.01896 trains without. Loss normalizer: reconstruction."
    )

    class Settings(EpsilonSettings, KLSettings):
        """The cap, the baseline and the penalty."""

    def objective(self, batch: Batch) -> Tensor:
        """sg(1{ρ_i ≤ 1+ε}·ρ_i)·A_i·log π at every token of response i."""
        log_rho_B = batch.log_rho_B.detach()
        dropped_B = log_rho_B > math.log1p(self.epsilon(batch))
        weight_B = torch.where(dropped_B, 0.0, torch.exp(torch.where(dropped_B, 0.0, log_rho_B)))
        return self.penalized(weight_B[:, None] * batch.advantages_B1 * batch.logp_BT, batch)
