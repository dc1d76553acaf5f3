"""Responses sampled by all versions that stand while their tokens are made: in-flight weight updates on the virtual clock."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gmc.delays.base import Arguments, DelayContext, GroupRef
from gmc.delays.flight import FlightClock
from gmc.delays.length import TOKENS_PER_CLOCK, LengthDelay
from gmc.store.records import fault


@dataclass(frozen=True)
class _State:
    """What `flight_state` gives. ready: time, batch and group of each group that is finished and not taken."""

    clock: float
    launched: int
    starts: list[float]
    waits: int
    ready: list[tuple[float, int, int]]


_STATE = TypeAdapter(_State)


class InflightDelay(LengthDelay):
    """The clock of `length:C`. Token t (from 0) of a response launched at time b begins at b + C·t/100, and the version that
    stands then samples it; a group waits for its slowest response.

    Which update takes which group follows from the lengths as under `length:C`, and the methods of `DelayModel` do just that.
    A trainer does not know the lengths before the tokens are made: it asks `tokens_before`, reports what is `ready`, and keeps
    `flight_state` in its checkpoints, since no replay finds again what later versions have sampled.
    """

    name = "inflight"
    summary = "the clock of length:C, but each token is sampled by the version that stands while it is made"
    usage = "inflight:C"
    examples = ("inflight:28",)
    in_flight = True

    def __init__(self, clock: float, *, prompts: int, updates: int) -> None:
        super().__init__(clock, "slowest", prompts=prompts, updates=updates)

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "InflightDelay":
        (clock,) = arguments.expect(1)
        return cls(arguments.number(clock, "the clock"), prompts=context.prompts, updates=context.updates)

    def flight_clock(self) -> FlightClock:
        return self

    @property
    def has_begun(self) -> bool:
        """Whether a batch was launched."""
        return self._launched > 0

    @property
    def now(self) -> float:
        """When the current version began to stand."""
        return self._now

    @property
    def start(self) -> float | None:
        """When the next update starts, by what was reported ready; None while that is less than P groups."""
        return self._next_start()

    @property
    def waiting(self) -> int:
        return (self._launched - len(self.starts)) * self._prompts

    def waiting_groups(self) -> set[GroupRef]:
        """The groups that are ready and not taken."""
        return {GroupRef(batch, group) for _, batch, group in (*self._first, *self._later)}

    def tokens_before(self, batch: int, until: float, most: int) -> int:
        """How many tokens of a response of `batch`, at most `most`, begin before the time `until`."""
        if batch >= until:
            return 0
        if not self._clock:
            return most
        begun = (until - batch) * TOKENS_PER_CLOCK / self._clock  # infinite for a clock below the smallest normal number
        tokens = most if begun >= most else math.ceil(begun)
        while tokens < most and self.ready_at(batch, tokens) < until:  # the quotient may round to either side
            tokens += 1
        while tokens and self.ready_at(batch, tokens - 1) >= until:
            tokens -= 1
        return tokens

    def ready_at(self, batch: int, longest: int) -> float:
        """When a group of `batch` is ready whose longest response has so many tokens."""
        return batch + self._clock * (longest / TOKENS_PER_CLOCK)

    def begin(self, batch: int, update: int) -> None:
        """A batch is launched: the next one. Raises what `next_launch` does for a clock that is far too slow."""
        if self.next_launch(update) != batch:
            raise ValueError(f"batch {self._launched} is the next to be launched, not {batch}")
        self._launched += 1

    def ready(self, group: GroupRef, longest: int) -> float:
        """All responses of a group are finished, the longest with so many tokens; returns when it is ready."""
        at = self.ready_at(group.batch, longest)
        self._add((at, *group))
        return at

    def flight_state(self) -> dict[str, Any]:
        """Where the clock stands, as strict JSON."""
        return {
            "clock": self._clock,
            "launched": self._launched,
            "starts": list(self.starts),
            "waits": self.waits,
            "ready": [list(group) for group in (*self._first, *sorted(self._later))],
        }

    def load_flight_state(self, state: Mapping[str, Any]) -> None:
        """Stand where a clock with this state stood. Raises `ValueError` for another clock's state."""
        try:
            saved = _STATE.validate_json(json.dumps(dict(state)), strict=True)
        except ValidationError as error:
            raise ValueError(fault(error)) from error
        if saved.clock != self._clock:
            raise ValueError(f"the clock was {saved.clock:g}")
        self._launched, self.waits, self.starts = saved.launched, saved.waits, list(saved.starts)
        self._now = self.starts[-1] + 1 if self.starts else 0.0
        for group in saved.ready:
            self._add(group)
