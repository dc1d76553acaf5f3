"""CARM: responses whose tokens have drifted too much, either way, are left out."""

import math

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class CARM(Estimator):
    """PPO's clipped surrogate of the responses with exp(mean |log r|) ≤ τ.

    The absolute value comes before the mean, so drift up and drift down cannot cancel as they do in the geometric mean ratio.
    """

    name = "carm"
    summary = "CARM: PPO's clip on responses whose mean |log r| is small"
    formula = "min(r·A, clip(r, 1±ε)·A)·1{exp(mean_t |log r_t|) ≤ τ}"
    reference = "arXiv 2610.02039"
    evidence = "Gate: third-party reading. GUESS: τ = 1.1 (stated nowhere found), and PPO's clip as the loss of kept responses."
    scope = "sequence"
    bounded = False
    normalizer = Normalizer.SEQ_MEAN_TOKEN_MEAN

    class Settings(EstimatorSettings):
        """tau: threshold of the gate. epsilon: half-width of the clip range."""

        tau: float = Field(1.1, gt=1, description="largest exp(mean |log r|) of a kept response")
        epsilon: float = Field(0.2, gt=0, lt=1, description="ratios are clipped to 1 ± epsilon")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate of kept responses; the others stay in the denominator."""
        mean_B1 = (batch.log_ratio_BT.detach().abs().sum(-1) / batch.lengths_B.clamp(min=1))[:, None]
        low, high = 1 - self.settings.epsilon, 1 + self.settings.epsilon
        surrogate_BT = clipped_surrogate(clamped_log_ratio(batch).exp(), batch.advantages_B1, low, high)
        return torch.where(mean_B1 > math.log(self.settings.tau), torch.zeros_like(surrogate_BT), surrogate_BT)
