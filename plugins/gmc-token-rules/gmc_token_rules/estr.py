"""ESTR, entropy-scaled trust region: drop tokens whose log-ratio is large for how uncertain the behavior policy was."""

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch, Need
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class ESTR(Estimator):
    """PPO's clipped surrogate where (log r)²/(H + 0.01) ≤ τ, else nothing; H the behavior policy's entropy at the token."""

    name = "estr"
    summary = "ESTR: PPO's clip where (log r)² is small against the behavior policy's entropy"
    formula = "min(r·A, clip(r, 1±ε)·A)·1{(log r)²/(H + 0.01) ≤ τ}"
    reference = "Zhao et al., arXiv 2607.22186"
    evidence = "Third-party reading. GUESS: τ = 0.1 (not stated anywhere found); choose it by its dropped_share."
    scope = "token"
    needs = frozenset({Need.BEHAVIOR_LOGP, Need.BEHAVIOR_ENTROPY})
    bounded = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """tau: threshold of the scaled square. epsilon: half-width of the clip range."""

        tau: float = Field(0.1, gt=0, description="largest (log r)²/(H + 0.01) of a kept token")
        epsilon: float = Field(0.2, gt=0, lt=1, description="ratios are clipped to 1 ± epsilon")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._dropped_share = 0.0

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate of kept tokens; tokens left out stay in the denominator."""
        score_BT = batch.log_ratio_BT.detach() ** 2 / (batch.behavior_entropy_BT + 0.01)
        dropped_BT = batch.mask_BT & (score_BT > self.settings.tau)
        self._dropped_share = float(dropped_BT.sum() / batch.mask_BT.sum().clamp(min=1))
        low, high = 1 - self.settings.epsilon, 1 + self.settings.epsilon
        surrogate_BT = clipped_surrogate(clamped_log_ratio(batch).exp(), batch.advantages_B1, low, high)
        return torch.where(dropped_BT, torch.zeros_like(surrogate_BT), surrogate_BT)

    def metrics(self, batch: Batch) -> dict[str, float]:
        """Share of tokens left out."""
        return {"dropped_share": self._dropped_share}
