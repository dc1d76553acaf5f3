"""DPPO with the binary-KL test: drop tokens that moved out and whose binary divergence exceeds a threshold."""

import math

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class DPPOKL(Estimator):
    """sg(min{r, c})·A·log π where the binary KL(μ‖π) of the sampled token is at most δ or the token moved back, else nothing.

    Binary means: the token against all others. Moved back: π ≤ μ for A > 0, π ≥ μ for A ≤ 0.
    """

    name = "dppo-kl"
    summary = "DPPO: token ratios, dropped where the binary KL of the token exceeds δ outward"
    formula = "min{r, c}·A·1{μ·log(μ/π) + (1−μ)·log((1−μ)/(1−π)) ≤ δ, or A > 0: π ≤ μ, or A ≤ 0: π ≥ μ}"
    reference = "DPPO, arXiv 2602.04879; verl, policy loss dppo_kl"
    evidence = "Exact in verl. GUESS: δ = 0.2, taken over from the total-variation form."
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """delta: threshold on the binary divergence. cap: of the ratio."""

        delta: float = Field(0.2, gt=0, description="largest binary KL of a token that moved out, in nats")
        cap: float = Field(20.0, ge=1, description="ratios are truncated here")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(min{r, c}·1{kept})·A·log π."""
        log_ratio_BT = batch.log_ratio_BT.detach()
        outward_B1 = torch.where(batch.advantages_B1 > 0, 1.0, -1.0)
        divergence_BT = binary_kl(batch.behavior_logp_BT, batch.logp_BT.detach())
        kept_BT: Tensor = (log_ratio_BT * outward_B1 <= 0) | (divergence_BT <= self.settings.delta)
        ratio_BT = log_ratio_BT.clamp(max=math.log(self.settings.cap)).exp()
        return kept_BT * ratio_BT * batch.advantages_B1 * batch.logp_BT


def binary_kl(logp_BT: Tensor, other_BT: Tensor) -> Tensor:
    """KL(p‖q) of "the token or any other" from log p and log q ≤ 0, finite also where a probability rounds to 0 or 1."""
    tiny = torch.finfo(logp_BT.dtype).tiny
    log_rest_BT = (-torch.expm1(logp_BT)).clamp(min=tiny).log()
    log_other_rest_BT = (-torch.expm1(other_BT)).clamp(min=tiny).log()
    token_BT = torch.exp(logp_BT) * (logp_BT - other_BT)
    return token_BT - torch.expm1(logp_BT) * (log_rest_BT - log_other_rest_BT)
