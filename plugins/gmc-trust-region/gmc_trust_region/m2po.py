"""M2PO as its paper has it: leave out the fewest tokens that bring the second moment of log r below a threshold."""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer
from gmc.estimators.surrogates import clamped_log_ratio
from gmc_trust_region.candidates import candidates, squares


class M2PO(Estimator):
    """Leaves out candidate tokens, largest (log r)² first, until the mean of (log r)² over the others is at most τ.

    Candidates have A > 0 and r > 1, or A < 0 and r < 1. Kept tokens have their plain ratio, so tokens that are no candidates
    are unbounded. The mask is decided over the whole update batch; tokens left out stay in the denominator. Whether the mean
    runs over the candidates or over every token that is kept, `mean_over` says; a candidate is dropped either way.
    """

    name = "m2po"
    summary = "M2PO: drop the fewest tokens that bring the second moment of log r to τ"
    formula = "M_it·r_it·A_i; M drops candidates, largest (log r)² first, until mean (log r)² over those kept ≤ τ"
    reference = "Zheng, Zhao, Chen, arXiv 2510.01161"
    evidence = (
        "Third-party readings of the paper agree. GUESS: the mean is over candidates, as in the authors' code (mean_over)."
    )
    scope = "batch"
    bounded = False
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """tau: threshold of the second moment. mean_over: the tokens that it is a mean of."""

        tau: float = Field(0.04, gt=0, description="largest mean of (log r)² over those kept")
        mean_over: Literal["candidates", "tokens"] = Field("candidates", description="what the mean is taken over")

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings)
        self._dropped_share = 0.0

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """M·r·A, with gradient through r."""
        candidate_BT = candidates(batch)
        square_BT = batch.log_ratio_BT.detach().double() ** 2
        counted_BT = batch.mask_BT if self.settings.mean_over == "tokens" else candidate_BT
        always = square_BT[counted_BT & ~candidate_BT]
        first = first_dropped(squares(batch, candidate_BT), self.settings.tau, float(always.sum()), len(always))
        dropped_BT = candidate_BT & (square_BT >= first)
        self._dropped_share = float(dropped_BT.sum() / batch.mask_BT.sum().clamp(min=1))
        surrogate_BT = clamped_log_ratio(batch).exp() * batch.advantages_B1
        return torch.where(dropped_BT, torch.zeros_like(surrogate_BT), surrogate_BT)

    def metrics(self, batch: Batch) -> Mapping[str, float]:
        """Share of tokens left out."""
        return {"dropped_share": self._dropped_share}


def first_dropped(squares_N: Tensor, tau: float, kept_sum: float = 0.0, kept_count: int = 0) -> float:
    """The smallest square that must go, so that the mean of all smaller ones is at most tau; infinite when none must.

    squares_N: ascending. kept_sum, kept_count: of the squares that count in the mean and never go; where they alone exceed
    tau, all others may have to go. Of several cuts within tau the one that drops least is taken.
    """
    counts_N = torch.arange(1, len(squares_N) + 1, dtype=squares_N.dtype, device=squares_N.device) + kept_count
    within_N = (squares_N.cumsum(0) + kept_sum) / counts_N <= tau
    kept = int(within_N.nonzero().max()) + 1 if within_N.any() else 0
    return float(squares_N[kept]) if kept < len(squares_N) else torch.inf
