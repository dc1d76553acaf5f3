"""A gradient as a vector: what the gradient stage of a rule may do with it, sharded or not."""

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final

import torch
from torch import Tensor


class Skip(Enum):
    """Returned by a gradient stage instead of a gradient: leave the optimizer untouched in this update."""

    SKIP = "skip"


SKIP: Final = Skip.SKIP


class Gradient:
    """The accumulated gradient of the loss, before clipping, as one long vector over all parameters.

    Dot products are accumulated in float64, so they do not depend on how parameters are split into tensors.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)

    def dot(self, other: "Gradient") -> float:
        """⟨self, other⟩."""
        pairs = zip(self.tensors, other.tensors, strict=True)
        return math.fsum(float(torch.sum(a.double() * b.double())) for a, b in pairs)

    def of(self, tensors: Sequence[Tensor]) -> "Gradient":
        """Another vector of the same kind: of tensors shaped like this one's, such as those that a rule has kept.

        Where processes hold a part of the gradient each, `Gradient(tensors)` would know only its own.
        """
        return Gradient(tensors)

    def norm(self) -> float:
        """Euclidean norm."""
        return math.sqrt(self.dot(self))

    def add(self, other: "Gradient", scale: float) -> "Gradient":
        """self + scale · other, as a new gradient."""
        return self.of([a + scale * b for a, b in zip(self.tensors, other.tensors, strict=True)])

    def clone(self) -> "Gradient":
        """A copy that later accumulation does not change."""
        return self.of([tensor.detach().clone() for tensor in self.tensors])
