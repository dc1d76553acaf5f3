"""Durations drawn by chance, whatever the content: Assumption 3 of arXiv 2610.01896, for the virtual clock."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gmc.delays.base import Arguments, DelayContext
from gmc.delays.clock import ClockDelay

FloatArray = NDArray[np.float64]

LARGEST_SIGMA = 5
_STREAM = 0xDE1A


class DrawnDelay(ClockDelay):
    """Durations drawn for each group from (seed, batch)."""

    reads_lengths = False

    def __init__(self, context: DelayContext) -> None:
        super().__init__(prompts=context.prompts, updates=context.updates)
        self._seed = context.seed

    def durations(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        generator = np.random.default_rng([self._seed, _STREAM, batch])
        return [float(value) for value in self.draw(generator, len(lengths_PG))]

    @abstractmethod
    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        """`count` independent durations in updates."""


class UniformDelay(DrawnDelay):
    """Whole numbers from `low` to `high`, both included, equally likely."""

    name = "uniform"
    summary = "the clock; a group takes a whole number of updates from LOW to HIGH, both included"
    usage = "uniform:LOW:HIGH"
    examples = ("uniform:0:64",)

    def __init__(self, low: int, high: int, context: DelayContext) -> None:
        super().__init__(context)
        self._low = low
        self._high = high

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "UniformDelay":
        low_text, high_text = arguments.expect(2)
        low, high = arguments.whole(low_text, "the lowest delay"), arguments.whole(high_text, "the highest delay")
        if low > high:
            arguments.refuse(f"the lowest delay {low} is above the highest {high}")
        return cls(low, high, context)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return generator.integers(self._low, self._high, size=count, endpoint=True).astype(np.float64)


class GeometricDelay(DrawnDelay):
    """Whole numbers k ≥ 0 with probability p(1 − p)^k, where p = 1 / (1 + mean)."""

    name = "geometric"
    summary = "the clock; a group takes k ≥ 0 updates with probability p(1 − p)^k, p = 1/(1 + MEAN)"
    usage = "geometric:MEAN"
    examples = ("geometric:32",)

    def __init__(self, mean: float, context: DelayContext) -> None:
        super().__init__(context)
        self._mean = mean

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "GeometricDelay":
        (mean,) = arguments.expect(1)
        return cls(arguments.number(mean, "the mean"), context)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return generator.geometric(1 / (1 + self._mean), size=count).astype(np.float64) - 1


class LognormalDelay(DrawnDelay):
    """Real numbers whose logarithm is normal with standard deviation `sigma`; `mean` is their arithmetic mean."""

    name = "lognormal"
    summary = "the clock; a group takes a lognormal time of arithmetic mean MEAN, SIGMA that of its logarithm"
    usage = "lognormal:MEAN:SIGMA"
    examples = ("lognormal:32:0.6",)

    def __init__(self, mean: float, sigma: float, context: DelayContext) -> None:
        super().__init__(context)
        self._mean = mean
        self._sigma = sigma

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "LognormalDelay":
        mean_text, sigma_text = arguments.expect(2)
        mean, sigma = arguments.number(mean_text, "the mean"), arguments.number(sigma_text, "sigma")
        if mean == 0:
            arguments.refuse("the mean of a lognormal is above 0")
        if sigma > LARGEST_SIGMA:
            arguments.refuse(f"sigma is {sigma:g}; it is the standard deviation of the logarithm, at most {LARGEST_SIGMA}")
        return cls(mean, sigma, context)

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        return generator.lognormal(math.log(self._mean) - self._sigma**2 / 2, self._sigma, size=count)
