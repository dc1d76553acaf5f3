"""TOPR, tapered off-policy REINFORCE: no ratio for good responses, a ratio of at most 1 for bad ones."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.base import Estimator, EstimatorSettings, group_centered
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class TOPR(Estimator):
    """A·log π for A > 0 and sg(min{ρ, 1})·A·log π for A < 0, ρ the trajectory ratio.

    A good response is learned from even when the policy has forgotten it; a bad one only as far as the policy still makes it.
    """

    name = "topr"
    summary = "TOPR: weight 1 for A > 0, min{ρ, 1} for A < 0"
    formula = "κ = A for A > 0, min{ρ, 1}·A for A < 0"
    reference = "Le Roux et al., arXiv 2503.14286; ROLL, pg_variant topr"
    evidence = "Paper: by response. ROLL: by token (level=token). The group-centered advantage is ours; the normalizer a GUESS."
    scope = "sequence"
    normalizer = Normalizer.SEQ_MEAN_TOKEN_SUM_NORM

    class Settings(EstimatorSettings):
        """level: whose ratio tapers."""

        level: Literal["sequence", "token"] = Field("sequence", description="ratio of the response or of the token")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self.scope = self.settings.level

    def advantages(self, batch: Batch) -> Tensor:
        """R − R̄ by group."""
        return group_centered(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(weight)·A·log π."""
        log_ratio = batch.log_ratio_BT if self.settings.level == "token" else batch.log_rho_B[:, None]
        taper = log_ratio.detach().clamp(max=0).exp()
        weight = torch.where(batch.advantages_B1 > 0, torch.ones_like(taper), taper)
        return weight * batch.advantages_B1 * batch.logp_BT
