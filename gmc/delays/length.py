"""Durations by response length: C · L / 100 updates for L tokens, C given or found from a wanted mean delay."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np

from gmc.delays.base import Arguments, DelayContext
from gmc.delays.calibration import calibrated_clock
from gmc.delays.clock import ClockDelay
from gmc.errors import UsageError

GroupRule = Literal["slowest", "mean"]

TOKENS_PER_CLOCK = 100
"""A response of L tokens takes C · L / 100 updates at clock C."""
_WANTED_GROUPS = 512


def group_tokens(lengths_PG: Sequence[Sequence[int]], group_rule: GroupRule) -> list[float]:
    """The length that decides each group's duration, in hundreds of tokens."""
    if group_rule == "mean":
        return [sum(lengths) / len(lengths) / TOKENS_PER_CLOCK for lengths in lengths_PG]
    return [max(lengths) / TOKENS_PER_CLOCK for lengths in lengths_PG]


class LengthDelay(ClockDelay):
    """A group waits for its slowest response, or takes the mean of its responses' times."""

    name = "length"
    summary = "the clock; a response of L tokens takes C·L/100 updates, C given or found for a mean delay M"
    usage = "length:C or length:mean=M, then :group=slowest (the default) or :group=mean"
    examples: ClassVar[tuple[str, ...]] = ("length:28", "length:28:group=mean", "length:mean=160")

    def __init__(
        self, clock: float, group_rule: GroupRule = "slowest", *, prompts: int, updates: int, earliest_start: float = 0.0
    ) -> None:
        super().__init__(prompts=prompts, updates=updates, earliest_start=earliest_start)
        self._clock = clock
        self._group_rule = group_rule

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "LengthDelay":
        group_rule: GroupRule = "slowest"
        clock: float | None = None
        mean: float | None = None
        for part in arguments.values:
            key, equals, value = part.partition("=")
            if key == "group" and value in ("mean", "slowest"):
                group_rule = cast(GroupRule, value)
            elif key == "mean" and equals and mean is clock is None:
                mean = arguments.number(value, "the mean delay")
            elif not equals and mean is clock is None:
                clock = arguments.number(part, "the clock")
            else:
                arguments.refuse(f"cannot read {part!r}; length takes C or mean=M, then group=mean or group=slowest")
        if mean:
            return CalibratedLengthDelay(mean, group_rule, context)
        if clock is None and mean is None:
            arguments.refuse("length needs a clock C (updates per 100 tokens) or mean=M")
        return cls(clock or 0.0, group_rule, prompts=context.prompts, updates=context.updates)

    def durations(self, batch: int, lengths_PG: Sequence[Sequence[int]]) -> list[float]:
        return [self._clock * tokens for tokens in group_tokens(lengths_PG, self._group_rule)]


class CalibratedLengthDelay(LengthDelay):
    """The clock that gives a wanted mean delay, still open until `calibrate` is told the lengths of the first batches.

    The first K = min(⌈512/P⌉, ⌊mean/2⌋) batches (at least one) tell the lengths. They are all of version 0, which the clock
    would have them be anyway. mean: over the run, in updates. Raises `UsageError` when the updates are too few for the mean:
    over N updates it is at most (N − 1)/2, reached when version 0 generates everything.
    """

    def __init__(self, mean: float, group_rule: GroupRule, context: DelayContext) -> None:
        updates = context.updates
        largest = (updates - 1) / 2
        if mean >= largest:
            raise UsageError(
                f"--delay length:mean={mean:g}: the mean delay of {updates} updates is at most {largest:g}, reached only when "
                f"version 0 generates everything; ask for a smaller mean or for more than {math.floor(2 * mean + 1)} updates"
            )
        self._batches = max(1, min(math.ceil(_WANTED_GROUPS / context.prompts), int(mean / 2)))
        start = float(self._batches - 1)
        super().__init__(math.nan, group_rule, prompts=context.prompts, updates=updates, earliest_start=start)
        self._mean = mean
        self._context = context

    @property
    def calibration_batches(self) -> int:
        return self._batches if math.isnan(self._clock) else 0

    def calibrate(self, lengths_BPG: Sequence[Sequence[Sequence[int]]]) -> None:
        if len(lengths_BPG) != self._batches:
            raise ValueError(f"calibration needs {self._batches} batches, not {len(lengths_BPG)}")
        tokens = np.array([value for lengths_PG in lengths_BPG for value in group_tokens(lengths_PG, self._group_rule)])
        self._clock = calibrated_clock(tokens, self._mean, self._context, earliest_start=float(self._batches - 1))

    def state_dict(self) -> dict[str, Any]:
        """`clock`: C in updates per 100 tokens, which depends on the first planned updates; nothing before `calibrate`."""
        return {} if math.isnan(self._clock) else {"clock": self._clock}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        clock = state.get("clock", math.nan)
        if state.keys() - {"clock"} or not isinstance(clock, int | float) or clock < 0 or math.isinf(clock):
            raise ValueError(f"the state of delay length is a clock, not {dict(state)}")
        self._clock = float(clock)

    def next_launch(self, update: int) -> int | None:
        if math.isnan(self._clock):
            raise ValueError("length:mean=M must be calibrated before the first launch")
        return super().next_launch(update)
