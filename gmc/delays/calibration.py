"""`length:mean=M`: the clock that gives a wanted mean delay, found from the lengths of the first batches.

The first K = min(⌈512/P⌉, ⌊M/2⌋) batches (at least one) tell the lengths. They are all of version 0, which the clock would
have them be anyway, so a resumed run finds the same lengths in the same shards and the same clock. C is the one at which a
simulated run of the planned length, whose groups are drawn from those K · P with replacement, has mean delay M over all
its updates, the start-up included. Lengths that change while training make the real mean differ.
"""

import math
from collections.abc import Sequence

import numpy as np

from gmc.delays.clock import ClockDelay
from gmc.delays.durations import Duration, GroupRule, LengthDuration, group_tokens
from gmc.errors import DataError, UsageError

_WANTED_GROUPS = 512
_MOST_PROMPTS = 16
_STREAM = 0xCA1B


class CalibratedClockDelay(ClockDelay):
    """The length-driven clock with C still open until `calibrate` is told the lengths of the first batches.

    mean: wanted mean delay over the run, in updates; clock: C if it was found before. Raises `UsageError` when `updates` are
    too few for the mean: over N updates it is at most (N − 1)/2, reached when version 0 generates everything.
    """

    def __init__(
        self, mean: float, group_rule: GroupRule, *, prompts: int, updates: int, seed: int, clock: float | None = None
    ) -> None:
        largest = (updates - 1) / 2
        if mean >= largest:
            raise UsageError(
                f"--delay length:mean={mean:g}: the mean delay of {updates} updates is at most {largest:g}, reached only when "
                f"version 0 generates everything; ask for a smaller mean or for more than {math.floor(2 * mean + 1)} updates"
            )
        batches = max(1, min(math.ceil(_WANTED_GROUPS / prompts), int(mean / 2)))
        self._length_duration = LengthDuration(math.nan if clock is None else clock, group_rule)
        super().__init__(self._length_duration, prompts=prompts, updates=updates, earliest_start=float(batches - 1))
        self._mean = mean
        self._updates = updates
        self._seed = seed
        self._calibration_batches = batches if clock is None else 0

    @property
    def calibration_batches(self) -> int:
        return self._calibration_batches

    @property
    def calibrated_clock(self) -> float | None:
        """C, in updates per 100 tokens; None before `calibrate`."""
        return None if math.isnan(self._length_duration.clock) else self._length_duration.clock

    def calibrate(self, lengths_BPG: Sequence[Sequence[Sequence[int]]]) -> None:
        if len(lengths_BPG) != self._calibration_batches:
            raise ValueError(f"calibration needs {self._calibration_batches} batches, not {len(lengths_BPG)}")
        rule = self._length_duration.group_rule
        tokens = np.array([value for lengths_PG in lengths_BPG for value in group_tokens(lengths_PG, rule)])
        self._length_duration.clock = calibrated_clock(
            tokens,
            self._mean,
            prompts=self._prompts,
            updates=self._updates,
            seed=self._seed,
            earliest_start=float(self._calibration_batches - 1),
        )

    def next_launch(self, update: int) -> int | None:
        if self.calibrated_clock is None:
            raise ValueError("length:mean=M must be calibrated before the first launch")
        return super().next_launch(update)


class _Resampled(Duration):
    """Group lengths (in hundreds of tokens) drawn from a sample, times the clock."""

    def __init__(self, tokens: np.ndarray[tuple[int], np.dtype[np.float64]], clock: float, seed: int) -> None:
        self._tokens = tokens
        self._clock = clock
        self._generator = np.random.default_rng([seed, _STREAM])

    def of_groups(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        drawn = self._generator.integers(len(self._tokens), size=len(lengths_PG))
        return [float(value) for value in self._clock * self._tokens[drawn]]


def calibrated_clock(
    tokens: np.ndarray[tuple[int], np.dtype[np.float64]],
    mean: float,
    *,
    prompts: int,
    updates: int,
    seed: int,
    earliest_start: float,
) -> float:
    """The clock C (updates per 100 tokens) at which groups of these lengths (hundreds of tokens) have mean delay `mean`.

    Raises `DataError` when every length is zero and `UsageError` when no clock reaches the mean in `updates`.
    """
    from scipy.optimize import brentq

    average = float(tokens.mean())
    if average == 0:
        raise DataError(f"--delay length:mean={mean:g}: all responses of the first batches are empty, so no clock can be found")
    if mean == 0:
        return 0.0
    width = min(prompts, _MOST_PROMPTS)

    def excess(clock: float) -> float:
        duration = _Resampled(tokens, clock, seed)
        return (
            _mean_delay(ClockDelay(duration, prompts=width, updates=updates, earliest_start=earliest_start), width, updates)
            - mean
        )

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
