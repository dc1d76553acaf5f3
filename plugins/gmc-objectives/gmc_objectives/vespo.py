"""VESPO: a smooth kernel on the trajectory ratio."""

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class VESPO(Estimator):
    """sg(φ(ρ))·A·log π with φ(ρ) = ρ^k·exp(λ·(1−ρ)): φ(1) = 1, largest at ρ = k/λ, fading on both sides."""

    name = "vespo"
    summary = "VESPO: a smooth kernel ρ^k·exp(λ(1−ρ)) on the trajectory ratio"
    formula = "κ = ρ^k·exp(λ·(1−ρ))·A, (k, λ) by the sign of A"
    reference = "VESPO, arXiv 2602.10693"
    evidence = "Kernel and constants exact in frameworks; token-mean as in the authors' code."
    scope = "sequence"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """k and lambda for positive and for negative advantages."""

        k_positive: float = Field(2.0, gt=0, description="power of ρ for A ≥ 0")
        lambda_positive: float = Field(3.0, gt=0, description="rate of the decay for A ≥ 0")
        k_negative: float = Field(3.0, gt=0, description="power of ρ for A < 0")
        lambda_negative: float = Field(2.0, gt=0, description="rate of the decay for A < 0")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(φ(ρ))·A·log π, φ in the log domain with log ρ within ±20."""
        log_rho_B1 = batch.log_rho_B.detach().clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)[:, None]
        positive_B1 = self._log_kernel(log_rho_B1, self.settings.k_positive, self.settings.lambda_positive)
        negative_B1 = self._log_kernel(log_rho_B1, self.settings.k_negative, self.settings.lambda_negative)
        weight_B1 = torch.where(batch.advantages_B1 >= 0, positive_B1, negative_B1).exp()
        return weight_B1 * batch.advantages_B1 * batch.logp_BT

    @staticmethod
    def _log_kernel(log_rho_B1: Tensor, power: float, decay: float) -> Tensor:
        return power * log_rho_B1 - decay * torch.expm1(log_rho_B1)
