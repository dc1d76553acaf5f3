"""M2PO as its authors' code has it: a clip range found from a budget on the capped second moment."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio
from gmc_trust_region.candidates import candidates, squares


class M2POOfficial(Estimator):
    """PPO's clip with one range exp(±√q) for the batch, q the largest square for which Σ min{(log r)², q} stays below τ·n.

    The sum runs over the n candidates (A > 0 and r > 1, or A < 0 and r < 1); when their mean square is at most τ nothing is
    clipped. A clipped token has no gradient, so this masks candidates above one threshold. The range is found over the whole
    update batch, the code's over a micro-batch; its optional floors on the range are left out.
    """

    name = "m2po-official"
    summary = "M2PO, authors' code: one clip range from a budget on the capped second moment"
    formula = "r_it·A_i, zero where a candidate's (log r)² > q; q: largest square with Σ_H min{(log r)², q} < τ·|H|"
    reference = "Zheng, Zhao, Chen, arXiv 2510.01161; github.com/Infini-AI-Lab/M2PO"
    evidence = "Official code, which differs from the paper's rule (m2po)."
    scope = "batch"
    bounded = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """tau: budget a candidate."""

        tau: float = Field(0.04, gt=0, description="budget of the capped second moment, a candidate")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._clipped_share = 0.0

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """r·A, with gradient through r, constant at clipped tokens."""
        candidate_BT = candidates(batch)
        square_BT = batch.log_ratio_BT.detach().double() ** 2
        clipped_BT = candidate_BT & (square_BT > largest_kept(squares(batch, candidate_BT), self.settings.tau))
        self._clipped_share = float(clipped_BT.sum() / batch.mask_BT.sum().clamp(min=1))
        surrogate_BT = clamped_log_ratio(batch).exp() * batch.advantages_B1
        return torch.where(clipped_BT, torch.zeros_like(surrogate_BT), surrogate_BT)

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """Share of tokens clipped."""
        return {"clipped_share": self._clipped_share}


def largest_kept(squares_N: Tensor, tau: float) -> float:
    """q: the value before the first at which Σ min{s, q} reaches tau·n, 0 when that is the first, infinite without a clip."""
    count = len(squares_N)
    budget = tau * count
    if count == 0 or float(squares_N.sum()) <= budget:
        return torch.inf
    above_N = torch.arange(count - 1, -1, -1, dtype=squares_N.dtype, device=squares_N.device)
    first = int((squares_N.cumsum(0) + above_N * squares_N < budget).sum())
    return float(squares_N[first - 1]) if first > 0 else 0.0
