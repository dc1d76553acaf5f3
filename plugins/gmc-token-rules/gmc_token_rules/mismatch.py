"""Ratios against the engine's log-probs: as one ratio, or as the engine's mismatch times the policy's staleness."""

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator, EstimatorSettings
from gmc.estimators.batch import Batch, Need
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clipped_surrogate


class MismatchSettings(EstimatorSettings):
    """factors: what is weighed. epsilon_low, epsilon_high: of the clip with two factors, not used with one."""

    factors: Literal["one", "two"] = Field(
        "one", description="one: weigh π/μ; two: weigh trainer/engine of the sampling policy, and clip π/μ as PPO does"
    )
    epsilon_low: float = Field(0.2, gt=0, lt=1, description="factors=two: π/μ is clipped below at 1 - epsilon_low")
    epsilon_high: float = Field(0.2, gt=0, description="factors=two: π/μ is clipped above at 1 + epsilon_high")


class MismatchEstimator(Estimator):
    """Base of rules made for the mismatch of engine and trainer: a weight w of a ratio of log-probs, by token or response.

    factors=one: sg(w(π/μ))·A·log π, μ of the run's kind; mismatch and staleness are one ratio.
    factors=two: sg(w(μ_trainer/μ_engine))·min(r·A, clip(r, 1−ε_low, 1+ε_high)·A), r = π/μ_trainer, both μ of the policy that
    sampled. The weight then acts on the engine's mismatch alone, whatever the delay, and the clip on staleness alone.
    """

    Settings: ClassVar[type[EstimatorSettings]] = MismatchSettings
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._two = self.settings.factors == "two"
        if self._two:
            self.needs = self.needs | {Need.ENGINE_LOGP}
            self.bounded = False  # PPO's min keeps r ≫ 1 where A < 0

    @abstractmethod
    def log_weight(self, log_ratio_BT: Tensor) -> Tensor:
        """log w of masked token log-ratios, −inf where a token is left out. Shape BT, or B1 for one weight a response."""

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The weighted score, or with two factors the weighted surrogate; tokens left out stay in the denominator."""
        log_weight = self.log_weight(batch.log_mismatch_BT if self._two else batch.log_ratio_BT.detach())
        kept = ~torch.isneginf(log_weight)
        weight = torch.where(kept, log_weight, torch.zeros_like(log_weight)).exp() * kept
        return weight * (self._surrogate(batch, log_weight) if self._two else batch.advantages_B1 * batch.logp_BT)

    def _surrogate(self, batch: Batch, log_weight: Tensor) -> Tensor:
        """PPO's term in π/μ, flat where the ratio or its product with the weight leaves e^±20."""
        room = LOG_RATIO_CLAMP - log_weight.clamp(min=0)
        ratio_BT = torch.minimum(batch.log_ratio_BT.clamp(min=-LOG_RATIO_CLAMP), room).exp()
        low, high = 1 - self.settings.epsilon_low, 1 + self.settings.epsilon_high
        return clipped_surrogate(ratio_BT, batch.advantages_B1, low, high)
