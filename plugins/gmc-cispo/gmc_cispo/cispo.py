"""CISPO: REINFORCE with detached token ratios, clipped at an absolute cap; no token is ever dropped."""

import math

from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class CISPO(Estimator):
    """sg(clip(r, floor, cap))·A·log π per token, r = π/μ. Both bounds are ratios, not distances from 1.

    Frameworks disagree on what their setting means: a cap of 5 is 5 − 1 = 4 in those that add it to 1. The original has no
    effective floor; those that clip to [1−ε, 1+ε] set one of 0.8 unless told otherwise.
    """

    name = "cispo"
    summary = "CISPO: detached token ratio clipped at an absolute cap, times A·log π"
    formula = "κ_it = clip(r_it, floor, cap)·A_i"
    reference = "MiniMax, arXiv 2506.13585; cap 5 as in ScaleRL, TRL and AReaL"
    evidence = "Exact in common frameworks. The cap differs between them; 5 is an absolute ratio here."
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """cap, floor: absolute bounds of the ratio."""

        cap: float = Field(5.0, ge=1, description="ratios are clipped here, an absolute ratio")
        floor: float = Field(0.0, ge=0, le=1, description="smaller ratios are raised to this")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(clip(r, floor, cap))·A·log π."""
        ratio_BT = batch.log_ratio_BT.detach().clamp(max=math.log(self.settings.cap)).exp()
        return ratio_BT.clamp(min=self.settings.floor) * batch.advantages_B1 * batch.logp_BT
