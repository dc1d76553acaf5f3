"""DPPO with the total-variation test: drop tokens whose probability has moved further out than a threshold."""

import math

import torch
from pydantic import Field
from torch import Tensor

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import Estimator, EstimatorSettings
from gmc.estimators.batch import Batch
from gmc.estimators.normalizer import Normalizer


class DPPOTV(Estimator):
    """sg(min{r, c})·A·log π where π − μ ≤ δ_high (A > 0) or π − μ ≥ −δ_low (A ≤ 0), else nothing.

    π and μ are the probabilities of the sampled token. A rare token may change its ratio a lot, a likely one only a little:
    the opposite of a ratio clip.
    """

    name = "dppo-tv"
    summary = "DPPO: token ratios, dropped where the probability itself moved out by more than δ"
    formula = "min{r, c}·A·1{A > 0: π − μ ≤ δ_high; A ≤ 0: π − μ ≥ −δ_low}"
    reference = "DPPO, arXiv 2602.04879; verl, policy loss dppo_tv"
    evidence = "Exact in verl, with c = 20 as its documentation recommends (its generic default is 3)."
    scope = "token"
    normalizer = Normalizer.TOKEN_MEAN

    class Settings(EstimatorSettings):
        """delta_low, delta_high: thresholds on the probability. cap: of the ratio."""

        delta_low: float = Field(0.2, gt=0, le=1, description="for A ≤ 0, the probability may fall by this")
        delta_high: float = Field(0.2, gt=0, le=1, description="for A > 0, the probability may rise by this")
        cap: float = Field(20.0, ge=1, description="ratios are truncated here")

    def advantages(self, batch: Batch) -> Tensor:
        """(R − R̄)/σ by group."""
        return group_normalized(batch.rewards_PG)

    def objective(self, batch: Batch) -> Tensor:
        """sg(min{r, c}·1{kept})·A·log π."""
        moved_BT = batch.logp_BT.detach().exp() - batch.behavior_logp_BT.exp()
        rises_B1 = batch.advantages_B1 > 0
        kept_BT = torch.where(rises_B1, moved_BT <= self.settings.delta_high, moved_BT >= -self.settings.delta_low)
        ratio_BT = batch.log_ratio_BT.detach().clamp(max=math.log(self.settings.cap)).exp()
        return kept_BT * ratio_BT * batch.advantages_B1 * batch.logp_BT
