"""Advantages beyond the base's two: the standard-deviation form most frameworks call GRPO's, and a ratio-weighted baseline."""

import torch
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


def weighted_leave_one_out(rewards_PG: Tensor, log_weight_PG: Tensor) -> Tensor:
    """A_i = R_i − Σ_{j≠i} w_j·R_j / Σ_{j≠i} w_j by group. Equal rewards give exactly zero, equal weights leave-one-out.

    log_weight_PG: log w. With trajectory ratios for w the baseline estimates the mean reward of the current policy, not of
    the older one that sampled the group, and like leave-one-out it does not depend on response i. Returns advantages_PG.
    Raises `ValueError` for groups of one. Source: self-normalized importance sampling over the other responses.
    """
    size = rewards_PG.shape[1]
    if size < 2:
        raise ValueError("a leave-one-out advantage needs at least 2 responses a group")
    itself_GG = torch.eye(size, dtype=torch.bool, device=rewards_PG.device)
    # Each row is normalized on its own: the others' weights may all vanish beside the one left out.
    share_PGG = torch.softmax(log_weight_PG[:, None, :].masked_fill(itself_GG, -torch.inf), dim=2)
    difference_PGG = rewards_PG[:, :, None] - rewards_PG[:, None, :]
    return (share_PGG * difference_PGG).sum(dim=2)
