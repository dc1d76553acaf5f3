"""Group-Mass Capping: one scalar a group keeps the group's mean ratio at or below 1 + ε."""

import math

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch


def capped_ratios(log_rho_PG: Tensor, epsilon: float) -> Tensor:
    """α·ρ_i with α = min{1, (1+ε)/ρ̄}, without overflow for any log ρ.

    A capped group equals (1+ε)·G·softmax(log ρ), self-normalized importance sampling scaled by 1+ε; the two forms agree
    at the threshold. Source: arXiv 2610.01896, Proposition 2; the softmax form is algebra on it.
    """
    group_size = log_rho_PG.shape[1]
    log_mean_P1 = torch.logsumexp(log_rho_PG, dim=1, keepdim=True) - math.log(group_size)
    capped_P1 = log_mean_P1 > math.log1p(epsilon)
    softmax_PG = (1 + epsilon) * group_size * torch.softmax(log_rho_PG, dim=1)
    # Above the cap exp would overflow before `where` drops it, and its NaN would reach the gradient of nothing but still warn.
    plain_PG = torch.exp(torch.where(capped_P1, torch.zeros_like(log_rho_PG), log_rho_PG))
    return torch.where(capped_P1, softmax_PG, plain_PG)


class GMC(Estimator):
    """Weights every response of a group by ρ_i·α, α = min{1, (1+ε)/ρ̄}, ρ̄ the group's mean trajectory ratio."""

    name = "gmc"
    summary = "Group-Mass Capping: scale a whole group so that its mean trajectory ratio is at most 1+ε"
    formula = "κ_i = α·ρ_i·A_i, α = min{1, (1+ε)/ρ̄}, ρ̄ = mean of ρ over the group"
    reference = "He, Jin, Luo, Zou, Liang, arXiv 2610.01896, Proposition 2"
    evidence = "Weight, advantage and ε: stated by the paper. Stop-gradient and loss normalizer: reconstruction."
    scope = "group"

    class Settings(EstimatorSettings):
        """epsilon: the cap is 1 + ε."""

        epsilon: float = Field(0.28, gt=0, description="the group's mean ratio is capped at 1 + epsilon")

    def objective(self, batch: Batch) -> Tensor:
        """sg(α·ρ_i)·A_i·log π at every token of response i."""
        weight_PG = capped_ratios(batch.log_rho_PG.detach(), self.settings.epsilon)
        return weight_PG.reshape(-1, 1) * batch.advantages_B1 * batch.logp_BT
