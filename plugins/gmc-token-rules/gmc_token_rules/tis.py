"""TIS, truncated importance sampling, on tokens or on whole responses."""

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class TIS(Estimator):
    """sg(min{r, C})·A·log π with r the token's ratio or the response's.

    The original weighs by π_old/μ and multiplies a PPO term in π/π_old. With one update a batch π_old = π, and this remains.
    """

    name = "tis"
    summary = "Truncated importance sampling min{r, C} on tokens or responses"
    formula = "κ = min{r, C}·A, r the token ratio (level=token) or the trajectory ratio (level=sequence)"
    reference = "Truncated importance sampling in verl (rollout_is) and slime (--use-tis)"
    evidence = "Exact in both, for one update a batch. C: 2 on tokens; 2 to 10 is usual on responses."
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """cap: C. level: whose ratio."""

        cap: float = Field(2.0, ge=1, description="ratios are truncated here")
        level: Literal["token", "sequence"] = Field("token", description="ratio of the token or of the response")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self.scope = self.settings.level

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(min{r, C})·A·log π."""
        log_ratio = batch.log_ratio_BT if self.settings.level == "token" else batch.log_rho_B[:, None]
        weight = log_ratio.detach().clamp(max=math.log(self.settings.cap)).exp()
        return weight * batch.advantages_B1 * batch.logp_BT
