"""Dr. GRPO: GRPO without dividing by the standard deviation or the response length."""

from pydantic import Field
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings, group_centered
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class DrGRPO(Estimator):
    """min(r·A, clip(r, 1±ε)·A) per token with A = R − R̄, summed over a response and divided by the constant L_max."""

    name = "dr-grpo"
    summary = "Dr. GRPO: GRPO without dividing by σ or by the response's length"
    formula = "min(r·A, clip(r, 1−ε, 1+ε)·A), A = R − R̄, seq-mean-token-sum-norm"
    reference = "Dr. GRPO (Liu et al., arXiv 2503.20783)"
    evidence = "Exact in common frameworks."
    scope = "token"
    bounded = False
    normalizer = Normalizer.SEQ_MEAN_TOKEN_SUM_NORM

    class Settings(EstimatorSettings):
        """epsilon: half-width of the clip range."""

        epsilon: float = Field(0.2, gt=0, lt=1, description="ratios are clipped to 1 ± epsilon")

    def advantages(self, batch: Batch) -> Tensor:
        """R − R̄ by group."""
        return group_centered(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate."""
        low, high = 1 - self.settings.epsilon, 1 + self.settings.epsilon
        return clipped_surrogate(clamped_log_ratio(batch).exp(), batch.advantages_B1, low, high)
