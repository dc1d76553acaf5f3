"""SAPO: a smooth gate in place of the clip."""

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio


class SAPO(Estimator):
    """(4/τ)·σ(τ·(r−1))·A per token, so the weight is 4·p·(1−p)·r with p = σ(τ·(r−1)): 1 at r = 1, fading on both sides."""

    name = "sapo"
    summary = "SAPO: a sigmoid gate instead of a clip; weights fade smoothly, at most 1.6"
    formula = "(4/τ)·σ(τ·(r−1))·A, τ = tau_positive for A > 0, tau_negative for A ≤ 0"
    reference = "Qwen team, arXiv 2511.20347"
    evidence = "Exact in common frameworks."
    scope = "token"
    normalizer = Normalizer.SEQ_MEAN_TOKEN_MEAN

    class Settings(EstimatorSettings):
        """tau_positive, tau_negative: sharpness of the gate by the advantage's sign."""

        tau_positive: float = Field(1.0, gt=0, description="sharpness of the gate for A > 0")
        tau_negative: float = Field(1.05, gt=0, description="sharpness of the gate for A ≤ 0")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The gated surrogate, with gradient through the gate."""
        tau_B1 = torch.full_like(batch.advantages_B1, self.settings.tau_negative)
        tau_B1[batch.advantages_B1 > 0] = self.settings.tau_positive
        gate_BT = torch.sigmoid(tau_B1 * (clamped_log_ratio(batch).exp() - 1))
        return 4 / tau_B1 * gate_BT * batch.advantages_B1
