"""TIS, truncated importance sampling, on tokens or on whole responses."""

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from gmc.estimators.base import EstimatorSettings
from gmc_token_rules.mismatch import MismatchEstimator, MismatchSettings


class TIS(MismatchEstimator):
    """sg(min{r, C})·A·log π with r the token's ratio or the response's; factors=two for the engine's mismatch apart.

    The original weighs by π_old/μ and multiplies a PPO term in π/π_old. With one update a batch π_old = π, and one factor
    remains; with two, π_old is the trainer's scoring of the policy that sampled.
    """

    name = "tis"
    summary = "Truncated importance sampling min{r, C} on tokens or responses"
    formula = "κ = min{r, C}·A, r the token ratio (level=token) or the trajectory ratio (level=sequence)"
    reference = "Truncated importance sampling in verl (rollout_is) and slime (--use-tis)"
    evidence = (
        "Exact in both, for one update a batch. C: 2 on tokens; 2 to 10 is usual on responses. factors=two: their product, but "
        "they take for π_old the policy at the trainer step's start, here it is the one that sampled."
    )

    class Settings(MismatchSettings):
        """cap: C. level: whose ratio."""

        cap: float = Field(2.0, ge=1, description="ratios are truncated here")
        level: Literal["token", "sequence"] = Field("token", description="ratio of the token or of the response")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self.scope = self.settings.level

    def log_weight(self, log_ratio_BT: Tensor) -> Tensor:
        """log min{r, C}."""
        log_ratio = log_ratio_BT if self.settings.level == "token" else log_ratio_BT.sum(-1, keepdim=True)
        return log_ratio.clamp(max=math.log(self.settings.cap))
