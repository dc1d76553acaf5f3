"""Batches of a cluster simulation that are launched and not yet used up."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gmc.simulator.servers import Placed

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class Flight:
    """One launched batch: when each of its P × G responses started and ended (NaN while that is not known).

    first_starts_PG: start of a response's first attempt; starts_PG, ends_PG: of the attempt that succeeded.
    """

    launched_at: float
    lengths_PG: Integers
    first_starts_PG: Floats = field(init=False)
    starts_PG: Floats = field(init=False)
    ends_PG: Floats = field(init=False)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.first_starts_PG, self.starts_PG, self.ends_PG = np.full((3, *self.lengths_PG.shape), np.nan)
        self.left = len(self.lengths_PG)

    def time_spent(self, until: float) -> float:
        """Time since launch of the groups not taken, summed."""
        return (until - self.launched_at) * self.left

    def busy_after(self, time: float) -> float:
        """Server time after `time` of the responses placed so far that will succeed."""
        return float(np.nansum(np.maximum(0, self.ends_PG - np.maximum(self.starts_PG, time))))


class Flights:
    """Every batch in flight, and the queue of groups whose responses have all ended."""

    def __init__(self, prompts: int, group_size: int) -> None:
        self._shape = (prompts, group_size)
        self._flights: dict[int, Flight] = {}
        self._ready_at: Floats = np.empty(0)
        self._ready_groups: Integers = np.empty(0, dtype=np.int64)  # batch · P + group

    def launch(self, batch: int, flight: Flight) -> Integers:
        """Add a batch; returns its job numbers, by which `placed` knows it."""
        self._flights[batch] = flight
        size = flight.lengths_PG.size
        return np.arange(batch * size, (batch + 1) * size)

    def placed(self, placed: Placed) -> None:
        """Note when responses start and end; groups that are complete by this join the ready ones."""
        batches = placed.jobs // (self._shape[0] * self._shape[1])
        for batch in np.unique(batches):
            mine = batches == batch
            flight = self._flights[int(batch)]
            group, sample = np.divmod(placed.jobs[mine] - batch * flight.lengths_PG.size, self._shape[1])
            first = flight.first_starts_PG[group, sample]
            flight.first_starts_PG[group, sample] = np.where(np.isnan(first), placed.starts[mine], first)
            flight.starts_PG[group, sample] = placed.starts[mine]
            flight.ends_PG[group, sample] = placed.ends[mine]
            groups = np.unique(group)
            ready_at = flight.ends_PG[groups].max(axis=1)  # NaN while a response is not done
            complete = ~np.isnan(ready_at)
            self._ready_at = np.concatenate((self._ready_at, ready_at[complete]))
            self._ready_groups = np.concatenate((self._ready_groups, batch * self._shape[0] + groups[complete]))

    def all_ready(self, count: int) -> float:
        """When the `count` earliest-ready groups are all ready; infinite while fewer have a known time."""
        if len(self._ready_at) < count:
            return float("inf")
        return float(np.partition(self._ready_at, count - 1)[count - 1])

    def take(self, count: int) -> tuple[Floats, list[tuple[Flight, Integers]]]:
        """Remove the `count` earliest-ready groups (ties by launch order): ready times, and the groups by batch."""
        last = self.all_ready(count)
        candidates = np.flatnonzero(self._ready_at <= last)
        chosen = candidates[np.lexsort((self._ready_groups[candidates], self._ready_at[candidates]))][:count]
        chosen = chosen[np.argsort(self._ready_groups[chosen])]
        ready_at, numbers = self._ready_at[chosen], self._ready_groups[chosen]
        self._ready_at = np.delete(self._ready_at, chosen)
        self._ready_groups = np.delete(self._ready_groups, chosen)
        batches, groups = np.divmod(numbers, self._shape[0])
        taken = []
        for batch in np.unique(batches):
            flight = self._flights[int(batch)]
            mine = groups[batches == batch]
            taken.append((flight, mine))
            flight.left -= len(mine)
            if not flight.left:
                del self._flights[int(batch)]
        return ready_at, taken

    @property
    def groups(self) -> int:
        """Number of groups launched and not taken."""
        return sum(flight.left for flight in self._flights.values())

    def time_spent(self, until: float) -> float:
        """Time since launch of the groups launched and not taken, summed."""
        return sum(flight.time_spent(until) for flight in self._flights.values())

    def busy_after(self, time: float) -> float:
        """Server time after `time` of the responses placed so far that will succeed."""
        return sum(flight.busy_after(time) for flight in self._flights.values())
