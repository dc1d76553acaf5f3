"""BAPO: clip bounds searched in every batch until positive tokens contribute their share."""

from collections.abc import Mapping

import torch
from pydantic import Field, model_validator
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class BAPO(Estimator):
    """PPO's clip with bounds [c_low, c_high] raised step by step while P/N is below the target; dual clip for A < 0.

    P = Σ min{r, c_high}·A over positive advantages, N = Σ max{r, c_low}·|A| over negative ones. First c_low rises to its
    maximum, then c_high. Raising c_low can only lower P/N, so the first search always runs to its end once entered.
    """

    name = "bapo"
    summary = "BAPO: clip bounds raised in each batch until P/N reaches its target"
    formula = "PPO's min with clip [c_low, c_high]; c_low, then c_high, rise while P/N < target; A < 0: at most dual_clip·|A|"
    reference = "Xi et al., arXiv 2510.18927; github.com/WooooDyy/BAPO"
    evidence = (
        "Official code: the target is the ratio P/N. The paper's text has the share P/(P+N), its equation a third quantity, "
        "and the order of the loops is not stated."
    )
    scope = "batch"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """target: of P/N. c_low, c_high: where the bounds start; *_max: where they end. Bounds are ratios."""

        target: float = Field(1.0, gt=0, description="the bounds rise while P/N is below this")
        c_low: float = Field(0.6, gt=0, le=1, description="lower bound at the start of the search, a ratio")
        c_low_max: float = Field(0.8, gt=0, le=1, description="largest lower bound")
        c_high: float = Field(1.2, ge=1, description="upper bound at the start of the search, a ratio")
        c_high_max: float = Field(2.0, ge=1, description="largest upper bound")
        step: float = Field(0.05, gt=0, description="step of both searches")
        dual_clip: float = Field(3.0, gt=1, description="for A < 0, ratios beyond this have no gradient")

        @model_validator(mode="after")
        def _ordered(self) -> "BAPO.Settings":
            if self.c_low > self.c_low_max or self.c_high > self.c_high_max:
                raise ValueError("c_low and c_high must not exceed c_low_max and c_high_max")
            return self

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._bounds = (self.settings.c_low, self.settings.c_high)

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate with the bounds found, not below dual_clip·A where A < 0."""
        ratio_BT, advantage_B1 = clamped_log_ratio(batch).exp(), batch.advantages_B1
        self._bounds = self._search(ratio_BT.detach(), batch)
        surrogate_BT = clipped_surrogate(ratio_BT, advantage_B1, *self._bounds)
        floor_B1 = torch.where(advantage_B1 < 0, self.settings.dual_clip * advantage_B1, -torch.inf)
        return torch.maximum(surrogate_BT, floor_B1)

    def _search(self, ratio_BT: Tensor, batch: Batch) -> tuple[float, float]:
        ratio_BT = ratio_BT.double()
        weight_BT = torch.where(batch.mask_BT, batch.advantages_B1.double(), 0.0)
        positive_BT, negative_BT = weight_BT.clamp(min=0), -weight_BT.clamp(max=0)

        def below_target(low: float, high: float) -> bool:
            gain = (ratio_BT.clamp(max=high) * positive_BT).sum()
            loss = (ratio_BT.clamp(min=low) * negative_BT).sum()
            return bool(gain / (loss + 1e-8) < self.settings.target)

        low, high = self.settings.c_low, self.settings.c_high
        while low < self.settings.c_low_max and below_target(low, high):
            low = min(low + self.settings.step, self.settings.c_low_max)
        while high < self.settings.c_high_max and below_target(low, high):
            high = min(high + self.settings.step, self.settings.c_high_max)
        return low, high

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """The bounds found."""
        return {"clip_low": self._bounds[0], "clip_high": self._bounds[1]}
