"""frozen-rule: one line that says what the rule does."""

import math

import torch
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from pydantic import Field
from torch import Tensor


class FrozenRule(Estimator):
    """Weights a response by min{rho, cap}, rho its trajectory ratio. Replace this rule by your own."""

    name = "frozen-rule"
    summary = "Sequence truncation min{rho, cap}, as scaffolded"
    formula = "min{rho, cap} * A"
    reference = "where the rule comes from"
    evidence = "what is certain about the formula and what is a guess"
    scope = "sequence"

    class Settings(EstimatorSettings):
        """cap: largest weight."""

        cap: float = Field(2.0, ge=1, description="trajectory ratios are truncated here")

    def objective(self, batch: Batch) -> Tensor:
        """Objective_BT, to be maximized; a weight is detached, or its own gradient would be followed too."""
        log_weight_B = batch.log_rho_B.detach().clamp(max=math.log(self.settings.cap))
        return torch.exp(log_weight_B)[:, None] * batch.advantages_B1 * batch.logp_BT
