"""When workers fail: a renewal process a worker, a pure function of (seed, worker, how often it failed before)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Failures:
    """Failures of workers with several slots each; every slot keeps its own place in its worker's sequence of failures.

    mean_time: mean running time between a restart and the next failure (exponential); down_time: from a failure to the
    restart, both in the unit of the simulation. Slots of one worker fail together; memory is one entry a slot.
    """

    def __init__(self, worker_of_slot: Integers, *, mean_time: float, down_time: float, seed: int) -> None:
        self._worker = worker_of_slot.astype(np.uint64)
        self._mean_time = mean_time
        self.down_time = down_time
        self._seed = np.uint64(seed)
        self._count = np.zeros(len(worker_of_slot), dtype=np.uint64)
        self.next_at: Floats = self._gap(np.arange(len(worker_of_slot)))
        """Time of each slot's next failure."""

    def restart_idle(self, free_at: Floats, now: float) -> None:
        """Let slots that are idle at `now` and failed before it be free again only after their restart."""
        while len(failed := np.flatnonzero(self.next_at <= np.maximum(free_at, now))):
            free_at[failed] = np.maximum(free_at[failed], self.next_at[failed] + self.down_time)
            self.advance(failed)

    def advance(self, slots: Integers) -> None:
        """Go on to the next failure of these slots."""
        self._count[slots] += np.uint64(1)
        self.next_at[slots] += self.down_time + self._gap(slots)

    def _gap(self, slots: Integers) -> Floats:
        """Exponential running times, from a 64-bit mix of (seed, worker, count) so that slots of a worker agree."""
        with np.errstate(over="ignore"):
            mixed = _mix(self._worker[slots] ^ _mix(self._count[slots] ^ _mix(self._seed + np.uint64(1))))
        uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return -self._mean_time * np.log(uniform)


def _mix(value: "NDArray[np.uint64] | np.uint64") -> "NDArray[np.uint64]":
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))
