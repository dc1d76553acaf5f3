"""GSPO: the clipped surrogate on the geometric mean of a response's token ratios."""

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import LOG_RATIO_CLAMP
from gmc.estimators.batch import Batch
from gmc.estimators.kl import KLEstimator, KLSettings
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clipped_surrogate


class GSPO(KLEstimator):
    """min(s·A, clip(s, 1−ε_low, 1+ε_high)·A), s = exp(mean token log-ratio), the same at every token of a response.

    Under seq-mean-token-mean each token's gradient is s·A/|y|. s is no importance weight of the response: it is ρ^(1/|y|). The
    paper leaves the KL penalty out of its formulas "for brevity"; with `kl` above 0, β·k3 is subtracted at each token.
    """

    name = "gspo"
    summary = "GSPO: clipped surrogate on the geometric-mean ratio of the response"
    formula = "min(s·A, clip(s, 1−ε_low, 1+ε_high)·A), s = ρ^(1/|y|)"
    reference = "Qwen team, arXiv 2507.18071"
    evidence = "Exact in common frameworks."
    scope = "sequence"
    bounded = False
    normalizer = Normalizer.SEQ_MEAN_TOKEN_MEAN

    class Settings(KLSettings):
        """epsilon_low, epsilon_high: half-widths of the clip range."""

        epsilon_low: float = Field(3e-4, gt=0, lt=1, description="s is clipped below at 1 - epsilon_low")
        epsilon_high: float = Field(4e-4, gt=0, description="s is clipped above at 1 + epsilon_high")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate of the response at each of its tokens."""
        mean_B = batch.log_rho_B / batch.lengths_B.clamp(min=1)
        ratio_B1 = mean_B.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()[:, None]
        low, high = 1 - self.settings.epsilon_low, 1 + self.settings.epsilon_high
        surrogate_B1 = clipped_surrogate(ratio_B1, batch.advantages_B1, low, high)
        return self.penalized(surrogate_B1.expand_as(batch.logp_BT), batch)
