"""Group truncation: one level a group, chosen so that the truncated ratios of the group average to at most 1 + ε."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from gmc.estimators.batch import Batch
from gmc.estimators.epsilon import CappingEstimator, ScalingEpsilonSettings


def filled_to(log_ratio_PG: Tensor, epsilon: float) -> Tensor:
    """min{r, c} with the largest level c of each row whose mean of min{r, c} is at most 1+ε (water-filling).

    log_ratio_PG: one row a group, any size. With the ratios of a row in ascending order and S_k the sum of the k smallest,
    the level is c = max over k of ((1+ε)·G − S_k)/(G − k): the sum of min{r, c} is the least of the lines S_k + (G − k)·c. A
    row whose mean is below 1+ε has a level above its largest ratio, and stays as it is.
    """
    size = log_ratio_PG.shape[1]
    mass = (1 + epsilon) * size
    # No level exceeds the mass of the whole group, so cutting there first changes nothing and keeps exp finite.
    ratio_PG = torch.exp(log_ratio_PG.clamp(max=math.log(mass)))
    ascending_PG = ratio_PG.sort(dim=1).values
    smaller_PG = pad(ascending_PG.cumsum(dim=1)[:, :-1], (1, 0))
    remaining_G = torch.arange(size, 0, -1, device=ratio_PG.device, dtype=ratio_PG.dtype)
    level_P1 = ((mass - smaller_PG) / remaining_G).amax(dim=1, keepdim=True)
    return torch.minimum(ratio_PG, level_P1)


class GroupTruncated(CappingEstimator):
    """Weights a response by min{ρ_i, c}, c the largest level at which the group's weights average to at most 1+ε.

    It removes exactly as much of the group's mass as gmc does, from the largest ratios alone: the other minimizer of
    Proposition 2's bound once the group's direction need not be kept.
    """

    name = "group-truncated"
    summary = "Group truncation: min{ρ, c}, one level c a group so that its mean weight is ≤ 1+ε"
    formula = "κ_i = min{ρ_i, c}·A_i, c the largest with mean of min{ρ, c} over the group ≤ 1+ε"
    reference = "Ours; a minimizer of the removed mass in arXiv 2610.01896, Proposition 2, without the demand on direction"
    evidence = (
        "Comparator of this project: no paper trains with it. That it removes the mass gmc removes is algebra, and tested."
    )
    scope = "group"
    Settings = ScalingEpsilonSettings

    def objective(self, batch: Batch) -> Tensor:
        """sg(min{ρ_i, c})·A_i·log π at every token of response i."""
        weight_PG = filled_to(batch.log_rho_PG.detach(), self.epsilon(batch))
        return weight_PG.reshape(-1, 1) * batch.advantages_B1 * batch.logp_BT
