"""How long a group takes on the virtual clock, in updates: by its response lengths, or by chance alone."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
GroupRule = Literal["slowest", "mean"]

TOKENS_PER_CLOCK = 100
"""A response of L tokens takes C · L / 100 updates at clock C."""
_STREAM = 0xDE1A


class Duration(ABC):
    """Time from the launch of each group of a batch until it is ready."""

    @abstractmethod
    def of_groups(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        """Durations (updates) of the P groups of launch batch `batch`; a pure function of its arguments and the seed."""


class LengthDuration(Duration):
    """C · L / 100 updates for a response of L tokens; a group waits for its slowest response or takes their mean."""

    def __init__(self, clock: float, group_rule: GroupRule = "slowest") -> None:
        self.clock = clock
        self.group_rule = group_rule

    def of_groups(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        return [self.clock * tokens for tokens in group_tokens(lengths_PG, self.group_rule)]


def group_tokens(lengths_PG: Sequence[Sequence[int]], group_rule: GroupRule) -> list[float]:
    """The length that decides each group's duration, in hundreds of tokens."""
    if group_rule == "mean":
        return [sum(lengths) / len(lengths) / TOKENS_PER_CLOCK for lengths in lengths_PG]
    return [max(lengths) / TOKENS_PER_CLOCK for lengths in lengths_PG]


class RandomDuration(Duration):
    """Durations drawn for each group from (seed, batch), whatever the content: Assumption 3 of arXiv 2610.01896."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of_groups(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        generator = np.random.default_rng([self._seed, _STREAM, batch])
        return [float(value) for value in self.draw(generator, len(lengths_PG))]

    @abstractmethod
    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        """`count` independent durations in updates."""


class UniformDuration(RandomDuration):
    """Whole numbers from `low` to `high`, both included, equally likely."""

    def __init__(self, low: int, high: int, *, seed: int) -> None:
        super().__init__(seed)
        self.low = low
        self.high = high

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return generator.integers(self.low, self.high, size=count, endpoint=True).astype(np.float64)


class GeometricDuration(RandomDuration):
    """Whole numbers k ≥ 0 with probability p(1 − p)^k, where p = 1 / (1 + mean)."""

    def __init__(self, mean: float, *, seed: int) -> None:
        super().__init__(seed)
        self.mean = mean

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return generator.geometric(1 / (1 + self.mean), size=count).astype(np.float64) - 1


class LognormalDuration(RandomDuration):
    """Real numbers whose logarithm is normal with standard deviation `sigma`; `mean` is their arithmetic mean."""

    def __init__(self, mean: float, sigma: float, *, seed: int) -> None:
        super().__init__(seed)
        self.mean = mean
        self.sigma = sigma

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return generator.lognormal(math.log(self.mean) - self.sigma**2 / 2, self.sigma, size=count)
