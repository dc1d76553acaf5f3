"""A-3PO: decoupled PPO whose anchor is interpolated between behavior and current policy by version lag."""

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch, Need
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio, clipped_surrogate


class A3PO(Estimator):
    """sg(w^(1−α))·min(u·A, clip(u, 1±ε)·A) per token, w = π/μ, u = w^α in value, α = 1/d (1 at d = 0).

    log π_prox = α·log μ + (1−α)·log π with log π detached, so ∂u/∂θ = u·∇log π, not α·u·∇log π. Unclipped, the weight is w
    whatever α is. The clip bites only where w leaves [(1−ε)^d, (1+ε)^d]: at d = 128 and ε = 0.2 the upper edge is 1.4e10, so
    at large delays the rule is unclipped token importance weighting, and collapses. `outer_cap` drops the tokens whose outer
    factor exceeds it.
    """

    name = "a3po"
    summary = "A-3PO: decoupled PPO, anchor interpolated in log space by version lag"
    formula = "sg(w^(1−α))·min(u·A, clip(u, 1−ε, 1+ε)·A), u = w^α, w = π/μ, α = 1/d"
    reference = "Li, Wu, Shen, arXiv 2512.06547; AReaL, prox_logp_method=loglinear"
    evidence = "Exact in AReaL; paper body unseen. outer_cap drops tokens as AReaL's older behave_imp_weight_cap (5.0) did."
    scope = "token"
    needs = frozenset({Need.BEHAVIOR_LOGP, Need.LAGS})
    bounded = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """epsilon: half-width of the clip range. outer_cap: none is the paper's behavior."""

        epsilon: float = Field(0.2, gt=0, lt=1, description="the ratio to the anchor is clipped to 1 ± epsilon")
        outer_cap: float | None = Field(None, ge=1, description="tokens whose outer factor exceeds this are left out")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """The clipped surrogate times the outer factor; tokens left out stay in the denominator."""
        log_w_BT = clamped_log_ratio(batch)
        alpha_BT = 1 / batch.lag_BT.clamp(min=1)
        # Value α·log w, gradient that of log w: only the numerator of u depends on θ.
        log_u_BT = log_w_BT - ((1 - alpha_BT) * log_w_BT).detach()
        log_outer_BT = ((1 - alpha_BT) * log_w_BT).detach()
        low, high = 1 - self.settings.epsilon, 1 + self.settings.epsilon
        surrogate_BT = log_outer_BT.exp() * clipped_surrogate(log_u_BT.exp(), batch.advantages_B1, low, high)
        if self.settings.outer_cap is None:
            return surrogate_BT
        return torch.where(log_outer_BT.exp() > self.settings.outer_cap, torch.zeros_like(surrogate_BT), surrogate_BT)
