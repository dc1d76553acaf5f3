"""IcePop: token ratios inside a band, nothing outside."""

import math

import torch
from pydantic import Field
from torch import Tensor

from gmc_token_rules.mismatch import MismatchEstimator, MismatchSettings


class IcePop(MismatchEstimator):
    """sg(r)·A·log π where low ≤ r ≤ high, else nothing; factors=two for the engine's mismatch apart.

    The original weighs the trainer's log-probs of the policy that sampled against the engine's, and multiplies a PPO term in
    π/π_old: factors=two. With one factor the band is on π/μ as a whole. Tokens left out stay in the denominator.
    """

    name = "icepop"
    summary = "IcePop: token ratio inside [low, high], nothing outside"
    formula = "κ_it = r_it·1{low ≤ r_it ≤ high}·A_i"
    reference = "arXiv 2510.18855"
    evidence = "Exact in common frameworks: with factors=one for one update a batch, with factors=two as the paper writes it."

    class Settings(MismatchSettings):
        """low, high: the band, as ratios."""

        low: float = Field(0.5, ge=0, le=1, description="smaller ratios are left out")
        high: float = Field(5.0, ge=1, description="larger ratios are left out")

    def log_weight(self, log_ratio_BT: Tensor) -> Tensor:
        """log r in the band."""
        low = math.log(self.settings.low) if self.settings.low > 0 else -math.inf
        kept_BT = (log_ratio_BT >= low) & (log_ratio_BT <= math.log(self.settings.high))
        return torch.where(kept_BT, log_ratio_BT, -torch.inf)
