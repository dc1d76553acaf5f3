"""MIS, masked importance sampling: IcePop's rule with the narrower band of its own implementation."""

from pydantic import Field

from gmc_token_rules.icepop import IcePop
from gmc_token_rules.mismatch import MismatchSettings


class MIS(IcePop):
    """sg(r)·A·log π where low ≤ r ≤ high, else nothing; the same weight as icepop, other bounds."""

    name = "mis"
    summary = "Masked importance sampling: token ratio inside [0.5, 2], nothing outside"
    reference = "slime, examples/train_infer_mismatch_helper (mode mask, level token)"
    evidence = "Exact in slime, for one update a batch; its veto threshold is left out. factors=two: as for tis."

    class Settings(MismatchSettings):
        """low, high: the band, as ratios."""

        low: float = Field(0.5, ge=0, le=1, description="smaller ratios are left out")
        high: float = Field(2.0, ge=1, description="larger ratios are left out")
