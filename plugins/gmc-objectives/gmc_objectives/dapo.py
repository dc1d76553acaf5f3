"""DAPO's objective: GRPO with a wider upper clip and one mean over all tokens."""

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class DAPO(Estimator):
    """min(r·A, clip(r, 1−ε_low, 1+ε_high)·A) per token with ε_high > ε_low, averaged over all tokens of the batch.

    Only the objective: DAPO's dynamic sampling and its penalty on overlong responses change what is sampled and rewarded.
    """

    name = "dapo"
    summary = "DAPO's objective: GRPO with clip-higher and a mean over all tokens"
    formula = "min(r·A, clip(r, 1−ε_low, 1+ε_high)·A), token-mean"
    reference = "DAPO (Yu et al., arXiv 2503.14476)"
    evidence = "Exact in common frameworks; dynamic sampling and the overlong penalty are not part of a rule."
    scope = "token"
    bounded = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """epsilon_low, epsilon_high: half-widths of the clip range."""

        epsilon_low: float = Field(0.2, gt=0, lt=1, description="ratios are clipped below at 1 - epsilon_low")
        epsilon_high: float = Field(0.28, gt=0, description="ratios are clipped above at 1 + epsilon_high")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate."""
        low, high = 1 - self.settings.epsilon_low, 1 + self.settings.epsilon_high
        return clipped_surrogate(clamped_log_ratio(batch).exp(), batch.advantages_B1, low, high)
