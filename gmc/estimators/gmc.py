"""Group-Mass Capping: one scalar a group keeps the group's mean ratio at or below 1 + ε."""

import math

import torch
from torch import Tensor

from gmc.estimators.batch import Batch
from gmc.estimators.epsilon import CappingEstimator, ScalingEpsilonSettings


def capped_ratios(log_ratio_PN: Tensor, epsilon: float, count_P1: Tensor | None = None) -> Tensor:
    """α·r with α = min{1, (1+ε)/r̄}, r̄ the mean ratio of a row, without overflow for any log-ratio.

    log_ratio_PN: one row a group; −inf marks an absent member, and count_P1 then says how many are present (default: all N).
    A capped row equals (1+ε)·N·softmax(log r), self-normalized importance sampling scaled by 1+ε; the two forms agree at the
    threshold. Source: arXiv 2610.01896, Proposition 2; the softmax form is algebra on it.
    """
    if count_P1 is None:
        count_P1 = torch.full_like(log_ratio_PN[:, :1], log_ratio_PN.shape[1])
    count_P1 = count_P1.clamp(min=1).to(log_ratio_PN.dtype)
    log_sum_P1 = torch.logsumexp(log_ratio_PN, dim=1, keepdim=True)
    capped_P1 = log_sum_P1 - count_P1.log() > math.log1p(epsilon)
    softmax_PN = (1 + epsilon) * count_P1 * torch.exp(log_ratio_PN - log_sum_P1.clamp(min=torch.finfo(log_sum_P1.dtype).min))
    # Above the cap exp would overflow before `where` drops it.
    plain_PN = torch.exp(torch.where(capped_P1, torch.zeros_like(log_ratio_PN), log_ratio_PN))
    return torch.where(capped_P1, softmax_PN, plain_PN)


class GMC(CappingEstimator):
    """Weights every response of a group by ρ_i·α, α = min{1, (1+ε)/ρ̄}, ρ̄ the group's mean trajectory ratio."""

    name = "gmc"
    summary = "Group-mass capping: scale a group so that its mean trajectory ratio is ≤ 1+ε"
    formula = "κ_i = α·ρ_i·A_i, α = min{1, (1+ε)/ρ̄}, ρ̄ = mean of ρ over the group"
    reference = "He, Jin, Luo, Zou, Liang, arXiv 2610.01896, Proposition 2"
    evidence = "Weight, advantage and ε: stated by the paper. Stop-gradient and loss normalizer: reconstruction."
    scope = "group"
    Settings = ScalingEpsilonSettings

    def objective(self, batch: Batch) -> Tensor:
        """sg(α·ρ_i)·A_i·log π at every token of response i."""
        weight_PG = capped_ratios(batch.log_rho_PG.detach(), self.epsilon(batch))
        return weight_PG.reshape(-1, 1) * batch.advantages_B1 * batch.logp_BT
