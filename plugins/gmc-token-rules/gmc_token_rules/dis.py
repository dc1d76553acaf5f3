"""DIS, double-sided importance sampling: token ratios strictly inside a band around 1."""

import math

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class DIS(Estimator):
    """sg(r)·A·log π where 1 − ε_low < r < 1 + ε_high, else nothing, whatever the sign of A.

    The rule's paper (SAO) pairs it with single rollouts and a value critic; here the advantage is the group's.
    """

    name = "dis"
    summary = "DIS: token ratio strictly inside (1−ε_low, 1+ε_high), nothing outside"
    formula = "κ_it = r_it·1{1 − ε_low < r_it < 1 + ε_high}·A_i"
    reference = "SAO, arXiv 2607.07508"
    evidence = "Abstract and third-party readings agree. The group advantage in place of the critic's is ours."
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """epsilon_low, epsilon_high: the band. The paper's values for reasoning; for coding 0.8 and 3."""

        epsilon_low: float = Field(0.3, gt=0, lt=1, description="ratios at or below 1 - epsilon_low are left out")
        epsilon_high: float = Field(5.0, gt=0, description="ratios at or above 1 + epsilon_high are left out")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(r·1{in band})·A·log π."""
        log_ratio_BT = batch.log_ratio_BT.detach()
        low, high = math.log1p(-self.settings.epsilon_low), math.log1p(self.settings.epsilon_high)
        kept_BT = (log_ratio_BT > low) & (log_ratio_BT < high)
        return kept_BT * log_ratio_BT.clamp(max=high).exp() * batch.advantages_B1 * batch.logp_BT
