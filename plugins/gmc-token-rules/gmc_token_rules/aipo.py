"""AIPO: token ratios truncated above, group-centered advantage."""

import math

from pydantic import Field
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings, group_centered
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class AIPO(Estimator):
    """sg(min{π/μ, cap})·A·log π per token, A = R − R̄. CISPO without a floor and without dividing by σ."""

    name = "aipo"
    summary = "AIPO: token ratio truncated above, group-mean baseline"
    formula = "κ_it = min{r_it, cap}·(R_i − R̄)"
    reference = "LlamaRL, arXiv 2505.24034"
    evidence = "Formula exact. The paper's cap lies between 2 and 10; GUESS: 5 as the default. Normalizer: not stated."
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """cap: of the ratio."""

        cap: float = Field(5.0, ge=1, description="ratios are truncated here")

    def advantages(self, batch: Batch) -> Tensor:
        """R − R̄ by group."""
        return group_centered(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(min{r, cap})·A·log π."""
        weight_BT = batch.log_ratio_BT.detach().clamp(max=math.log(self.settings.cap)).exp()
        return weight_BT * batch.advantages_B1 * batch.logp_BT
