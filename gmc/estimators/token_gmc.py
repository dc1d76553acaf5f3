"""Group-Mass Capping on token ratios: an experimental rule of this project."""

import torch
from torch import Tensor

from gmc.estimators.batch import Batch
from gmc.estimators.epsilon import CappingEstimator, ScalingEpsilonSettings
from gmc.estimators.gmc import capped_ratios


class TokenGMC(CappingEstimator):
    """Weights every token of a group by α·r, α = min{1, (1+ε)/r̄}, r̄ the mean token ratio over the group's tokens.

    It keeps the direction of the group's token-weighted gradient, as gmc keeps that of the trajectory-weighted one, and trades
    the trajectory ratio's variance for the bias of token ratios (they correct the token, not the state it was sampled in).
    """

    name = "token-gmc"
    summary = "Experimental: group-mass capping with the mean token ratio"
    formula = "κ_it = α·r_it·A_i, α = min{1, (1+ε)/r̄}, r̄ = mean of r over all response tokens of the group"
    reference = "Ours; the cap of arXiv 2610.01896, Proposition 2, moved to token ratios"
    evidence = "Experimental rule of this project. No paper states or tests it, and Proposition 2 does not cover it."
    scope = "group"
    Settings = ScalingEpsilonSettings

    def objective(self, batch: Batch) -> Tensor:
        """sg(α·r_it)·A_i·log π."""
        empty = torch.full_like(batch.logp_BT, -torch.inf).detach()
        log_ratio_BT = torch.where(batch.mask_BT, batch.log_ratio_BT.detach(), empty)
        tokens_P1 = batch.mask_BT.reshape(batch.groups, -1).sum(-1, keepdim=True)
        weight = capped_ratios(log_ratio_BT.reshape(batch.groups, -1), self.epsilon(batch), tokens_P1)
        return weight.reshape(batch.logp_BT.shape) * batch.advantages_B1 * batch.logp_BT
