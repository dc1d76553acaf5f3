"""OPMD, online policy mirror descent: REINFORCE without a ratio, damped by its temperature."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings, group_centered
from gmc.estimators.batch import Batch, Need
from gmc.estimators.normalizer import Normalizer

NOTHING: frozenset[Need] = frozenset()


class OPMD(Estimator):
    """A·log π/(1+τ) per token. It needs no behavior log-probs: whatever the delay, stale responses count in full."""

    name = "opmd"
    summary = "OPMD: REINFORCE without a ratio, divided by 1+τ"
    formula = "A·log π/(1+τ), A = R − R̄ or R − τ·log mean exp(R/τ)"
    reference = "Trinity-RFT, policy loss opmd"
    evidence = "Formula exact in Trinity-RFT. GUESS: the normalizer."
    scope = "token"
    needs = NOTHING
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """tau: temperature. baseline: of the advantage."""

        tau: float = Field(1.0, gt=0, description="temperature; the gradient is divided by 1 + tau")
        baseline: Literal["mean", "log-mean-exp"] = Field("mean", description="what is subtracted from the reward")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self.on_policy_weight = 1 / (1 + self.settings.tau)

    def advantages(self, batch: Batch) -> Tensor:
        """R − R̄, or R − τ·log mean exp(R/τ), by group; equal rewards give exactly zero either way."""
        centered_PG = group_centered(batch.rewards_PG)
        if self.settings.baseline == "mean":
            return centered_PG
        tau, size = self.settings.tau, batch.group_size
        # On R − R̄, which leaves the result as it is and zero for equal rewards.
        soft_P1 = tau * (torch.logsumexp(centered_PG / tau, dim=1, keepdim=True) - math.log(size))
        equal_P1 = (centered_PG == 0).all(dim=1, keepdim=True)
        return torch.where(equal_P1, torch.zeros_like(centered_PG), centered_PG - soft_P1)

    def objective(self, batch: Batch) -> Tensor:
        """A·log π/(1+τ)."""
        return batch.advantages_B1 * batch.logp_BT * self.on_policy_weight
