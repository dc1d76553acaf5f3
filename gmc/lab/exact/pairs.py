"""Pairs of policies: the one that sampled, and the one being trained, some way off."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gmc.lab.exact.policy import TabularPolicy

Direction = Literal["uphill", "random"]


@dataclass(frozen=True)
class PolicyPair:
    """behavior_D sampled; current_D is trained; anchor_D lies halfway between them."""

    behavior_D: Tensor
    current_D: Tensor

    @property
    def anchor_D(self) -> Tensor:
        """Halfway along the drift."""
        return (self.behavior_D + self.current_D) / 2


def drifted(behavior_D: Tensor, direction_D: Tensor, drift: float) -> PolicyPair:
    """The policy at distance `drift` from the behavior policy in a direction of any length."""
    return PolicyPair(behavior_D, behavior_D + drift * direction_D / direction_D.norm())


def draw_pairs(
    policy: TabularPolicy, rewards_K: Tensor, *, direction: Direction, drift: float, count: int, seed: int
) -> list[PolicyPair]:
    """Behavior parameters from N(0, 1), then the drift: along ∇J of the behavior policy, or along another normal draw.

    One seed gives the same behavior policies at every drift.
    """
    draw = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        behavior_D = torch.from_numpy(draw.normal(size=policy.parameters))
        uphill = direction == "uphill"
        way_D = policy.gradient_D(behavior_D, rewards_K) if uphill else torch.from_numpy(draw.normal(size=policy.parameters))
        pairs.append(drifted(behavior_D, way_D, drift))
    return pairs
