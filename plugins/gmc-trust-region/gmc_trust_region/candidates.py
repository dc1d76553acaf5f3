"""Which tokens a trust region constrains: those that their own advantage pushes further from the behavior policy."""

import torch
from torch import Tensor

from gmc.estimators.batch import Batch


def candidates(batch: Batch) -> Tensor:
    """True at response tokens with A > 0 and r > 1, or A < 0 and r < 1. Shape BT."""
    return batch.mask_BT & (torch.sign(batch.log_ratio_BT.detach()) * torch.sign(batch.advantages_B1) > 0)


def squares(batch: Batch, where_BT: Tensor) -> Tensor:
    """(log r)² of the marked tokens in ascending order, float64, as one vector."""
    return (batch.log_ratio_BT.detach()[where_BT].double() ** 2).sort().values
