"""gmc whose groups exchange their caps: the same set of α in every batch, each on another group than the one it came from."""

import math

import torch
from torch import Tensor

from gmc.estimators.base import LOG_RATIO_CLAMP
from gmc.estimators.batch import Batch
from gmc.estimators.epsilon import CappingEstimator, ScalingEpsilonSettings


def others(count: int, seed: int) -> Tensor:
    """A random permutation in one cycle: for each of `count` groups another one. A single group keeps its own."""
    cycle = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return torch.empty_like(cycle).scatter(0, cycle, cycle.roll(-1))


class ShuffledGMC(CappingEstimator):
    """Weights every response of a group by ρ_i·α', α' the α = min{1, (1+ε)/ρ̄} of another random group of the batch.

    If gmc gains by shortening the mean step, this gains as much; if by capping the groups that exceed, it loses that. The
    exchange is drawn by the update's index over the groups in the order of ρ̄, so neither a resume nor the order of the
    groups changes it. Nothing bounds a group's mass any more: log ρ is clamped at ±20.
    """

    name = "shuffled-gmc"
    summary = "Control: gmc with each group's α exchanged for that of another random group"
    formula = "κ_i = α'·ρ_i·A_i, α' = min{1, (1+ε)/ρ̄} of another group of the batch"
    reference = "Ours; a control for arXiv 2610.01896, Proposition 2"
    evidence = "Made to be compared with gmc, not to be trained with."
    scope = "batch"
    bounded = False
    Settings = ScalingEpsilonSettings

    def objective(self, batch: Batch) -> Tensor:
        """sg(α'·ρ_i)·A_i·log π at every token of response i."""
        log_rho_PG = batch.log_rho_PG.detach()
        log_mean_P = log_rho_PG.logsumexp(dim=1) - math.log(batch.group_size)
        log_alpha_P = (math.log1p(self.epsilon(batch)) - log_mean_P).clamp(max=0)
        order_P = log_mean_P.argsort()
        exchanged_P = torch.empty_like(log_alpha_P)
        exchanged_P[order_P] = log_alpha_P[order_P[others(batch.groups, batch.update).to(order_P.device)]]
        log_weight_PG = (log_rho_PG + exchanged_P[:, None]).clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
        return log_weight_PG.exp().reshape(-1, 1) * batch.advantages_B1 * batch.logp_BT
