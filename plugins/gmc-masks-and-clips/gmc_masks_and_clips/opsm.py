"""OPSM, off-policy sequence mask: bad responses that the policy has already left are not pushed further."""

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class OPSM(Estimator):
    """PPO's clipped surrogate, without the responses with A < 0 whose mean token log-ratio is below −δ."""

    name = "opsm"
    summary = "OPSM: PPO's clip without negative responses that have drifted away"
    formula = "min(r·A, clip(r, 1±ε)·A)·1{not (A < 0 and mean(log μ − log π) > δ)}"
    reference = "DeepSeek-V3.2; slime (--use-opsm), TRL (off_policy_mask_threshold)"
    evidence = "Mask exact in frameworks. δ: slime 1e-4 (the default here), TRL's example 0.5."
    scope = "sequence"
    bounded = False
    normalizer = Normalizer.SEQ_MEAN_TOKEN_MEAN

    class Settings(EstimatorSettings):
        """delta: threshold of the mask. epsilon: half-width of the clip range."""

        delta: float = Field(1e-4, ge=0, description="largest mean of log μ − log π of a kept negative response, in nats")
        epsilon: float = Field(0.2, gt=0, lt=1, description="ratios are clipped to 1 ± epsilon")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate of kept responses; the others stay in the denominator."""
        drift_B1 = (-batch.log_rho_B.detach() / batch.lengths_B.clamp(min=1))[:, None]
        dropped_B1 = (batch.advantages_B1 < 0) & (drift_B1 > self.settings.delta)
        low, high = 1 - self.settings.epsilon, 1 + self.settings.epsilon
        surrogate_BT = clipped_surrogate(clamped_log_ratio(batch).exp(), batch.advantages_B1, low, high)
        return torch.where(dropped_B1, torch.zeros_like(surrogate_BT), surrogate_BT)
