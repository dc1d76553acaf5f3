"""Advantages beyond the base's two: the standard-deviation form most frameworks call GRPO's."""

from torch import Tensor

from gmc.estimators.base import group_centered


def group_normalized(rewards_PG: Tensor) -> Tensor:
    """A_i = (R_i − R̄) / (σ_R + 1e-6), σ with the G−1 denominator, by group. Equal rewards give exactly zero.

    rewards_PG: rewards by group; returns advantages_PG. Raises `ValueError` for groups of one. Source: Shao et al., arXiv
    2402.03300; the denominator and the 1e-6 are those of common frameworks.
    """
    if rewards_PG.shape[1] < 2:
        raise ValueError("a normalized advantage needs at least 2 responses a group")
    return group_centered(rewards_PG) / (rewards_PG.std(dim=1, keepdim=True) + 1e-6)
