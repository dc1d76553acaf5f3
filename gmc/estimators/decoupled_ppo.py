"""Decoupled PPO: clip around a recent policy, correct for the behavior policy outside the clip."""

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import LOG_RATIO_CLAMP, Estimator, EstimatorSettings
from gmc.estimators.batch import Batch, Need
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clipped_surrogate


class DecoupledPPO(Estimator):
    """sg(π_prox/μ)·min(u·A, clip(u, 1±ε)·A) per token, u = π/π_prox, π_prox the policy `anchor_lag` updates back.

    With π_prox = π (a lag of 0, or AReaL's anchor at one update a batch) u is 1, nothing is ever clipped, and the rule equals
    token-level importance weighting.
    """

    name = "decoupled-ppo"
    summary = "Decoupled PPO: clip around a recent policy, weight to the behavior policy"
    formula = "sg(π_prox/μ)·min(u·A, clip(u, 1−ε, 1+ε)·A), u = π/π_prox"
    reference = "Hilton et al., arXiv 2110.00641; for language models Fu et al., arXiv 2505.24298 (AReaL)"
    evidence = (
        "Formula exact in AReaL, without its optional outer filter. The anchor is a reconstruction: AReaL's is the policy "
        "at the trainer step's start, which with one update a batch is the current policy; ours lies anchor_lag updates back."
    )
    scope = "token"
    needs = frozenset({Need.BEHAVIOR_LOGP, Need.ANCHOR_LOGP})
    bounded = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """epsilon: half-width of the clip range around the anchor. anchor_lag: which policy the anchor is."""

        epsilon: float = Field(0.2, gt=0, lt=1, description="the ratio to the anchor is clipped to 1 ± epsilon")
        anchor_lag: int = Field(1, ge=1, description="the anchor is the policy this many updates back")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self.anchor_lag = self.settings.anchor_lag

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate times the outer factor; log outer, and log outer + log u, stay within ±20."""
        log_outer_BT = (batch.anchor_logp_BT - batch.behavior_logp_BT).clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
        log_u_BT = batch.logp_BT - batch.anchor_logp_BT
        log_u_BT = torch.clamp(log_u_BT, -LOG_RATIO_CLAMP - log_outer_BT, LOG_RATIO_CLAMP - log_outer_BT)
        low, high = 1 - self.settings.epsilon, 1 + self.settings.epsilon
        return log_outer_BT.exp() * clipped_surrogate(log_u_BT.exp(), batch.advantages_B1, low, high)
