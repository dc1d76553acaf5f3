"""SAT, staleness-adaptive trust region: PPO's clip, narrower for the tokens that have drifted most."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio


class SAT(Estimator):
    """PPO's clip; where |log r| exceeds its own quantile q, the bound on the side of the drift contracts by a Hill kernel.

    scale = q²/(q² + (|log r| − q)²): 1 at the quantile, falling to 0. log r > 0 contracts the upper bound, log r < 0 the lower.
    """

    name = "sat"
    summary = "SAT: PPO's clip, contracted for the tokens that drifted most"
    formula = "min(r·A, clip(r, 1−ε·s⁻, 1+ε·s⁺)·A), s = q²/(q² + (|log r|−q)²) beyond the quantile q of |log r|, else 1"
    reference = "arXiv 2607.18722"
    evidence = "Third-party reading. GUESS: the kernel's form, and that the quantile runs over the whole update batch."
    scope = "batch"
    bounded = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """epsilon: half-width before contraction. quantile: of |log r|."""

        epsilon: float = Field(0.2, gt=0, lt=1, description="half-width of the clip range before it contracts")
        quantile: float = Field(0.9, gt=0, lt=1, description="tokens beyond this quantile of |log r| contract")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._gate_share, self._smallest = 0.0, 1.0

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate with a range for each token."""
        log_ratio_BT = batch.log_ratio_BT.detach()
        scale_BT = self._scale(log_ratio_BT, batch.mask_BT)
        one_BT = torch.ones_like(scale_BT)
        low_BT = 1 - self.settings.epsilon * torch.where(log_ratio_BT < 0, scale_BT, one_BT)
        high_BT = 1 + self.settings.epsilon * torch.where(log_ratio_BT > 0, scale_BT, one_BT)
        ratio_BT = clamped_log_ratio(batch).exp()
        return torch.minimum(ratio_BT * batch.advantages_B1, ratio_BT.clamp(low_BT, high_BT) * batch.advantages_B1)

    def _scale(self, log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
        size_BT = log_ratio_BT.abs()
        if not mask_BT.any():
            return torch.ones_like(size_BT)
        q = torch.quantile(size_BT[mask_BT], self.settings.quantile)
        scale_BT = q**2 / (q**2 + (size_BT - q) ** 2)
        scale_BT = torch.where(size_BT > q, scale_BT, torch.ones_like(scale_BT))
        self._gate_share = float((size_BT > q)[mask_BT].double().mean())
        self._smallest = float(scale_BT[mask_BT].min())
        return scale_BT

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """Share of tokens whose range contracted, and the smallest scale."""
        return {"gate_share": self._gate_share, "smallest_scale": self._smallest}
