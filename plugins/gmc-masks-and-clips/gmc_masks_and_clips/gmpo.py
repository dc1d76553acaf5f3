"""GMPO: the geometric mean of clipped token ratios."""

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio


class GMPO(Estimator):
    """A·exp(mean over tokens of the clipped log r), clipped above for A > 0 and below for A < 0, before the mean.

    A clipped token has no gradient and still counts in the mean. Under seq-mean-token-mean each other token's gradient is the
    geometric mean times A/|y|.
    """

    name = "gmpo"
    summary = "GMPO: geometric mean of token ratios, each clipped before the mean"
    formula = "A·exp(mean_t c(log r_t)), c(x) = min(x, band) for A > 0, max(x, −band) for A < 0"
    reference = "GMPO, arXiv 2507.20673; verl, policy loss geo_mean"
    evidence = "Exact in frameworks, with a band of 0.4 in log space."
    scope = "sequence"
    bounded = False
    normalizer = Normalizer.SEQ_MEAN_TOKEN_MEAN

    class Settings(EstimatorSettings):
        """band: half-width of the clip in log space."""

        band: float = Field(0.4, gt=0, description="token log-ratios are clipped here, in nats")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The geometric mean of the response, times A, at each of its tokens."""
        log_ratio_BT = clamped_log_ratio(batch)
        band = self.settings.band
        above_BT, below_BT = log_ratio_BT.clamp(max=band), log_ratio_BT.clamp(min=-band)
        clipped_BT = torch.where(batch.advantages_B1 > 0, above_BT, below_BT)
        mean_B1 = clipped_BT.sum(-1, keepdim=True) / batch.lengths_B.clamp(min=1)[:, None]
        return (mean_B1.exp() * batch.advantages_B1).expand_as(batch.logp_BT)
