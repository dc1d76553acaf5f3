"""Optimizers over many runs at once: one row of parameters, one learning rate and one decision to step a run."""

from typing import Literal

import torch
from torch import Tensor

Optimizer = Literal["adam", "sgd", "one-norm"]

BETA_1, BETA_2, TINY = 0.9, 0.999, 1e-8


class Ascent:
    """adam: Adam; sgd: plain steps; one-norm: Adam on gradients scaled to length 1 (a zero gradient stays zero)."""

    def __init__(self, kind: Optimizer, theta_RD: Tensor) -> None:
        self._kind: Optimizer = kind
        self._mean_RD, self._square_RD = torch.zeros_like(theta_RD), torch.zeros_like(theta_RD)
        self._steps_R1 = theta_RD.new_zeros(len(theta_RD), 1)

    def step(self, theta_RD: Tensor, gradient_RD: Tensor, rate_R: Tensor, active_R: Tensor | None = None) -> Tensor:
        """The parameters after one step uphill. A run that is not active keeps parameters and moments; default all are."""
        rate_R1 = rate_R[:, None]
        if self._kind == "one-norm":
            length_R1 = gradient_RD.norm(dim=1, keepdim=True)
            gradient_RD = torch.where(length_R1 > 0, gradient_RD / length_R1, 0.0)
        if self._kind == "sgd":
            moved_RD = theta_RD + rate_R1 * gradient_RD
            return moved_RD if active_R is None else torch.where(active_R[:, None], moved_RD, theta_RD)
        mean_RD = BETA_1 * self._mean_RD + (1 - BETA_1) * gradient_RD
        square_RD = BETA_2 * self._square_RD + (1 - BETA_2) * gradient_RD**2
        steps_R1 = self._steps_R1 + 1
        unbiased_RD = mean_RD / (1 - BETA_1**steps_R1)
        moved_RD = theta_RD + rate_R1 * unbiased_RD / ((square_RD / (1 - BETA_2**steps_R1)).sqrt() + TINY)
        if active_R is not None:
            kept = active_R[:, None]
            mean_RD, square_RD = torch.where(kept, mean_RD, self._mean_RD), torch.where(kept, square_RD, self._square_RD)
            steps_R1, moved_RD = torch.where(kept, steps_R1, self._steps_R1), torch.where(kept, moved_RD, theta_RD)
        self._mean_RD, self._square_RD, self._steps_R1 = mean_RD, square_RD, steps_R1
        return moved_RD
