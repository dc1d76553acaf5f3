"""Vanilla GRPO: the two-sided clipped token surrogate with group-centered advantages."""

from pydantic import Field
from torch import Tensor

from gmc.estimators.base import group_centered
from gmc.estimators.batch import Batch
from gmc.estimators.kl import KLEstimator, KLSettings
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class GRPO(KLEstimator):
    """min(r·A, clip(r, 1−ε_low, 1+ε_high)·A) per token, with r against the behavior policy; no dual clip.

    With `kl` above 0, β·k3 to the initial policy is subtracted at each token, as the paper of GRPO has it; the
    baseline of arXiv 2610.01896 trains without.
    """

    name = "grpo"
    summary = "Vanilla GRPO: two-sided clipped token ratios, group-centered advantage"
    formula = "min(r·A, clip(r, 1−ε_low, 1+ε_high)·A) per token, r = π/μ"
    reference = "Shao et al., arXiv 2402.03300; set up as the baseline of arXiv 2610.01896"
    evidence = "Exact in common frameworks. A negative advantage keeps unbounded ratios, so log-ratios are clamped at ±20."
    scope = "token"
    bounded = False
    normalizer = Normalizer.SEQ_MEAN_TOKEN_MEAN

    class Settings(KLSettings):
        """epsilon_low, epsilon_high: half-widths of the clip range."""

        epsilon_low: float = Field(0.2, gt=0, lt=1, description="ratios are clipped below at 1 - epsilon_low")
        epsilon_high: float = Field(0.2, gt=0, description="ratios are clipped above at 1 + epsilon_high")

    def advantages(self, batch: Batch) -> Tensor:
        """R − R̄ by group, without the standard deviation, as in arXiv 2610.01896."""
        return group_centered(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate; tokens on the clipped side have zero gradient."""
        ratio_BT = clamped_log_ratio(batch).exp()
        low, high = 1 - self.settings.epsilon_low, 1 + self.settings.epsilon_high
        return self.penalized(clipped_surrogate(ratio_BT, batch.advantages_B1, low, high), batch)
