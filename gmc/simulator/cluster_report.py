"""What a cluster simulation measures: how stale trained groups are, where they became so, and what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmc.simulator.cluster_settings import ClusterSettings
from gmc.simulator.flight import Flight
from gmc.simulator.statistics import DelayStatistics

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Lags:
    """Delays of trained responses, split into versions that passed while generating and while waiting in the queue."""

    def __init__(self, updates: int, *, in_flight_updates: bool) -> None:
        self.delays = DelayStatistics()
        self._in_flight_updates = in_flight_updates
        self._published = np.full(updates, np.inf)
        self._count = 0
        self._groups = 0
        self._generating = 0
        self._token_lag = 0.0
        self._tokens = 0

    def publish(self, time: float) -> None:
        """The next version is current from `time` on."""
        self._published[self._count] = time
        self._count += 1

    def add(self, update: int, ready_at: Floats, taken: list[tuple[Flight, Integers]]) -> None:
        """Count the groups that `update` takes; `ready_at` is in the order of `taken`."""
        lengths_PG = np.concatenate([flight.lengths_PG[groups] for flight, groups in taken])
        first_starts_PG = np.concatenate([flight.first_starts_PG[groups] for flight, groups in taken])
        born = self._version(first_starts_PG.min(axis=1))
        group_size = lengths_PG.shape[1]
        self.delays.add(np.repeat(update - born, group_size), lengths_PG.ravel())
        self._groups += len(born)
        self._generating += int((self._version(ready_at) - born).sum())
        if self._in_flight_updates:
            starts_PG = np.concatenate([flight.starts_PG[groups] for flight, groups in taken])
            ends_PG = np.concatenate([flight.ends_PG[groups] for flight, groups in taken])
            self._token_lag += float((lengths_PG * (update - self._mean_version(starts_PG, ends_PG))).sum())
        else:
            self._token_lag += float(lengths_PG.sum(axis=1) @ (update - born))
        self._tokens += int(lengths_PG.sum())

    @property
    def generating(self) -> float:
        """Mean number of versions published while a group is generated."""
        return self._generating / self._groups

    @property
    def queued(self) -> float:
        """Mean number of versions published while a group that is ready waits for its update."""
        return self.delays.mean - self.generating

    @property
    def token_lag(self) -> float:
        """Mean over trained tokens of update index − version that generated the token."""
        return self._token_lag / max(self._tokens, 1)

    def version_at(self, time: float) -> int:
        """The version that is current at this time."""
        return int(self._version(np.array(time)))

    def _version(self, times: Floats) -> Integers:
        return np.searchsorted(self._published[: self._count], times, side="right").astype(np.int64)

    def _mean_version(self, starts: Floats, ends: Floats) -> Floats:
        """Mean version over the tokens of responses that advance at an even pace through weight changes."""
        published = self._published[: self._count]
        sums = np.concatenate(([0.0], np.cumsum(published)))

        def versions_over_time(times: Floats) -> Floats:
            version = self._version(times)
            return np.asarray(times * version - sums[version])

        span = ends - starts
        moving = span > 0
        over_time = versions_over_time(ends) - versions_over_time(starts)
        return np.where(moving, over_time / np.where(moving, span, 1.0), self._version(starts))


@dataclass(frozen=True)
class ClusterReport:
    """Figures of one simulated run, its start included. policy_gb: written and read in all."""

    settings: ClusterSettings
    lags: Lags
    updates: int
    wall_seconds: float
    trainer_waited_seconds: float
    busy_slot_seconds: float
    lost_slot_seconds: float
    failed_responses: int
    waiting_groups: int
    versions_sent: int
    policy_gb: float

    @property
    def updates_per_hour(self) -> float:
        return 3600 * self.updates / self.wall_seconds

    @property
    def trainer_utilization(self) -> float:
        """Share of the wall time in which the trainer computes updates."""
        return self.updates * self.settings.update_seconds / self.wall_seconds

    @property
    def worker_utilization(self) -> float:
        """Share of the wall time of all slots in which they generate, the lost work included."""
        return self.busy_slot_seconds / (self.settings.total_slots * self.wall_seconds)

    def summary(self) -> dict[str, Any]:
        settings, wall = self.settings, self.wall_seconds
        return {
            "workers": settings.workers,
            "slots": settings.slots,
            "max_ahead": settings.max_ahead,
            "updates": self.updates,
            "wall_hours": wall / 3600,
            "updates_per_hour": self.updates_per_hour,
            "trainer_utilization": self.trainer_utilization,
            "trainer_waiting_share": self.trainer_waited_seconds / wall,
            "sync_seconds": settings.sync,
            "sync_share": min(1.0, self.versions_sent * settings.sync / wall),
            "versions_sent": self.versions_sent,
            "policy_gb_per_hour": 3600 * self.policy_gb / wall,
            "worker_utilization": self.worker_utilization,
            "worker_lost_share": self.lost_slot_seconds / (settings.total_slots * wall),
            "failed_responses": self.failed_responses,
            "waiting_groups": self.waiting_groups,
            "delay": self.lags.delays.summary(),
            "delay_in_generation": self.lags.generating,
            "delay_in_queue": self.lags.queued,
            "token_lag": self.lags.token_lag,
        }


def frontier(reports: Sequence[ClusterReport]) -> list[bool]:
    """Which clusters no other one beats: with no more workers and no more mean delay, it makes no more updates an hour."""

    def beats(one: ClusterReport, other: ClusterReport) -> bool:
        mine = (-one.settings.workers, -one.lags.delays.mean, one.updates_per_hour)
        theirs = (-other.settings.workers, -other.lags.delays.mean, other.updates_per_hour)
        return mine != theirs and all(a >= b for a, b in zip(mine, theirs, strict=True))

    return [not any(beats(one, other) for one in reports) for other in reports]
