"""IcePop: token ratios inside a band, nothing outside."""

import math

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class IcePop(Estimator):
    """sg(r)·A·log π where low ≤ r ≤ high, else nothing; tokens left out stay in the denominator.

    The original weighs by π_old/μ and multiplies a PPO term in π/π_old. With one update a batch π_old = π, and this remains.
    """

    name = "icepop"
    summary = "IcePop: token ratio inside [low, high], nothing outside"
    formula = "κ_it = r_it·1{low ≤ r_it ≤ high}·A_i"
    reference = "arXiv 2510.18855"
    evidence = "Exact in common frameworks, for one update a batch."
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """low, high: the band, as ratios."""

        low: float = Field(0.5, ge=0, le=1, description="smaller ratios are left out")
        high: float = Field(5.0, ge=1, description="larger ratios are left out")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(r·1{in band})·A·log π."""
        log_ratio_BT = batch.log_ratio_BT.detach()
        low = math.log(self.settings.low) if self.settings.low > 0 else -math.inf
        high = math.log(self.settings.high)
        kept_BT = (log_ratio_BT >= low) & (log_ratio_BT <= high)
        return kept_BT * log_ratio_BT.clamp(max=high).exp() * batch.advantages_B1 * batch.logp_BT
