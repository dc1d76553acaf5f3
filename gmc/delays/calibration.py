"""The clock that gives a wanted mean delay, from the lengths of the first batches.

C is the clock at which a simulated run of the planned length, whose groups are drawn with replacement from those told, has
mean delay M over all its updates, the start-up included. Lengths that change while training make the real mean differ.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gmc.delays.base import DelayContext
from gmc.delays.clock import ClockDelay
from gmc.errors import DataError, UsageError

_MOST_PROMPTS = 16
_STREAM = 0xCA1B


class _Resampled(ClockDelay):
    """Group lengths (in hundreds of tokens) drawn from a sample, times the clock."""

    def __init__(
        self, tokens: NDArray[np.float64], clock: float, seed: int, *, prompts: int, updates: int, earliest_start: float
    ) -> None:
        super().__init__(prompts=prompts, updates=updates, earliest_start=earliest_start)
        self._tokens = tokens
        self._factor = clock
        self._generator = np.random.default_rng([seed, _STREAM])

    def durations(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        drawn = self._generator.integers(len(self._tokens), size=len(lengths_PG))
        return [float(value) for value in self._factor * self._tokens[drawn]]


def calibrated_clock(tokens: NDArray[np.float64], mean: float, context: DelayContext, *, earliest_start: float) -> float:
    """The clock C (updates per 100 tokens) at which groups of these lengths (hundreds of tokens) have mean delay `mean`.

    Raises `DataError` when every length is zero and `UsageError` when no clock reaches the mean in the planned updates.
    """
    from scipy.optimize import brentq

    average = float(tokens.mean())
    if average == 0:
        raise DataError(f"--delay length:mean={mean:g}: all responses of the first batches are empty, so no clock can be found")
    width, updates = min(context.prompts, _MOST_PROMPTS), context.updates

    def excess(clock: float) -> float:
        delays = _Resampled(tokens, clock, context.seed, prompts=width, updates=updates, earliest_start=earliest_start)
        return _mean_delay(delays, width, updates) - mean

    low, high = 0.0, mean / average
    while excess(high) < 0:
        low, high = high, 2 * high
        if high * average > 5 * updates:
            raise UsageError(
                f"--delay length:mean={mean:g}: no clock gives that mean delay within {updates} updates; "
                "ask for a smaller mean or for more updates"
            )
    # Below the smallest mean that the clock's earliest start allows, C = 0 is the closest there is.
    if excess(low) >= 0:
        return low
    return float(brentq(excess, low, high, rtol=1e-4, xtol=1e-9 * high))


def _mean_delay(delays: ClockDelay, prompts: int, updates: int) -> float:
    """Mean delay of a run whose durations need no lengths."""
    versions: list[int] = []
    nothing: list[list[int]] = [[]] * prompts
    total = 0
    for update in range(updates):
        while (batch := delays.next_launch(update)) is not None:
            delays.launched(batch, update, nothing)
            versions.append(update)
        total += sum(update - versions[group.batch] for group in delays.take(update))
    return total / (updates * prompts)
