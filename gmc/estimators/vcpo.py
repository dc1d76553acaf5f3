"""Variance-Controlled Policy Optimization: truncated trajectory weights, a minimum-variance baseline, an ESS-guided rate."""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch, Need
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.sample_size import log_ess_share


class VCPO(Estimator):
    """κ_i = min{ρ_i, c}·(R_i − b*), b* the off-policy minimum-variance baseline of the group; rate·min{1, ESS/B/e₀}^p."""

    name = "vcpo"
    summary = "Truncated ratios, minimum-variance baseline, rate scaled by sample size"
    formula = "κ_i = min{ρ_i, c}·(R_i − Σ_j W_j·R_j), W = softmax(2·log ρ + log‖s‖²); rate · min{1, (ESS/B)/e₀}^p"
    reference = "Huang, Zhang, Hu, Yang, Han, arXiv 2602.17616, equations 7 and 13; github.com/mit-han-lab/vcpo"
    evidence = (
        "Official code, except the baseline's weights: the paper's ρ²‖s‖² is used, the code's are min(ρ,c)²·ρ²·‖s‖². "
        "score_norms=proxy is ours: Σ_t (1−π_t)², a lower bound on the squared score with respect to the logits."
    )
    scope = "group"
    needs = frozenset({Need.BEHAVIOR_LOGP, Need.SCORE_NORMS})
    normalizer = Normalizer.SEQ_MEAN_TOKEN_MEAN

    class Settings(EstimatorSettings):
        """c: truncation. lr_rule, ess_weights, base_ess: the step size. score_norms: of the baseline."""

        c: float = Field(8.0, ge=1, description="trajectory ratios are truncated at c")
        lr_rule: Literal["sqrt", "linear", "off"] = Field("sqrt", description="exponent of the rate's factor: 1/2, 1 or 0")
        ess_weights: Literal["raw", "truncated"] = Field("raw", description="ratios that the sample size is computed from")
        base_ess: float = Field(1.0, gt=0, le=1, description="sample-size share at and above which the rate is unchanged")
        score_norms: Literal["exact", "proxy"] = Field("exact", description="exact costs one more backward a response")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        if self.settings.score_norms == "proxy":
            self.needs = frozenset({Need.BEHAVIOR_LOGP})

    def advantages(self, batch: Batch) -> Tensor:
        """R_i − b*, b* = Σ_j W_j·R_j over the group, written Σ_j W_j·(R_i − R_j) so that equal rewards give exactly zero."""
        log_weight_PG = 2 * batch.log_rho_PG.detach() + self._log_norm_B(batch).reshape(batch.rewards_PG.shape)
        # A group of empty responses, or of responses with probability 1, has no score; every baseline is then as good.
        no_score_P1 = torch.isneginf(log_weight_PG).all(dim=1, keepdim=True)
        weight_PG = torch.softmax(torch.where(no_score_P1, torch.zeros_like(log_weight_PG), log_weight_PG), dim=1)
        difference_PGG = batch.rewards_PG[:, :, None] - batch.rewards_PG[:, None, :]
        return (weight_PG[:, None, :] * difference_PGG).sum(-1)

    def objective(self, batch: Batch) -> Tensor:
        """sg(min{ρ_i, c})·(R_i − b*)·log π."""
        log_weight_B = batch.log_rho_B.detach().clamp(max=math.log(self.settings.c))
        return torch.exp(log_weight_B)[:, None] * batch.advantages_B1 * batch.logp_BT

    def learning_rate_scale(self, batch: Batch) -> float:
        """min{1, (ESS/B)/e₀}^p over all sequences of the batch (arXiv 2602.17616, section on step sizes)."""
        power = {"sqrt": 0.5, "linear": 1.0, "off": 0.0}[self.settings.lr_rule]
        return math.exp(power * min(0.0, self._log_ess(batch) - math.log(self.settings.base_ess)))

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """ESS share of the weights that the rate follows, and the rate's factor."""
        return {"ess_fraction": math.exp(self._log_ess(batch)), "learning_rate_scale": self.learning_rate_scale(batch)}

    def _log_ess(self, batch: Batch) -> float:
        log_rho_B = batch.log_rho_B.detach()
        cap = math.log(self.settings.c) if self.settings.ess_weights == "truncated" else math.inf
        return log_ess_share(log_rho_B.clamp(max=cap))

    def _log_norm_B(self, batch: Batch) -> Tensor:
        if self.settings.score_norms == "exact":
            return batch.log_score_norm_B
        missed_BT = torch.where(batch.mask_BT, -torch.expm1(batch.logp_BT.detach()), 0.0)
        return (missed_BT**2).sum(-1).log()
