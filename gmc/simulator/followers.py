"""A discrete-event forecast of live mode, by the rules of `gmc.live`: whole batches, one graded while the next is sampled.

Batch b may be begun once version b − A is trained. A follower begins as many batches as its engine takes at once, with the
newest weights it has; newer ones wait until what has begun is sampled. When its first batch is sampled and the one before it is
graded, that batch is given to the grader and another is begun. So a follower holds one batch more than it samples, begun
earlier than it would have been if grading came first. The trainer takes the complete batch with the lowest number.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from gmc.simulator.cluster_report import ClusterReport, Lags
from gmc.simulator.cluster_settings import ClusterSettings
from gmc.simulator.flight import Flight
from gmc.simulator.lengths import LengthSource
from gmc.simulator.littles_law import Ledger
from gmc.simulator.servers import ServerPool, slowness_of_workers
from gmc.simulator.transfer import Transfer


class _What(IntEnum):
    """What happens; of things that happen at one time, the first named comes first."""

    TRAINED, TURN, GRADED = range(3)


@dataclass
class _Batch:
    number: int
    version: int
    flight: Flight
    sampled_at: float


@dataclass
class _Follower:
    place: int
    pool: ServerPool
    begun: deque[_Batch] = field(default_factory=deque)
    graded_at: float = 0.0
    version: int | None = None  # of the weights it holds


def simulate_followers(
    settings: ClusterSettings,
    lengths: LengthSource,
    *,
    updates: int,
    seed: int,
    on_update: Callable[[], None] = lambda: None,
) -> ClusterReport:
    """As `gmc.simulator.cluster.simulate_cluster`, for workers that are `gmc rollout --follow` processes."""
    return _LiveRun(settings, lengths, updates, seed, on_update).report()


class _LiveRun:
    def __init__(
        self, settings: ClusterSettings, lengths: LengthSource, updates: int, seed: int, on_update: Callable[[], None]
    ) -> None:
        self._settings, self._lengths, self._updates, self._on_update = settings, lengths, updates, on_update
        slowness = slowness_of_workers(settings.workers, settings.straggler_share, settings.straggler_slowdown, seed)
        self._followers = [
            _Follower(place, ServerPool(settings.slots, slowness=np.full(settings.slots, each)))
            for place, each in enumerate(slowness)
        ]
        self._lags = Lags(updates, in_flight_updates=settings.in_flight_updates)
        self._ledger, self._transfer = Ledger(), Transfer(settings)
        self._flights: dict[int, Flight] = {}
        self._ready: dict[int, float] = {}
        self._idle: list[_Follower] = []
        self._events: list[tuple[float, _What, int, _Follower | None]] = []  # a heap; places and numbers order what ties
        self._now = self._trained_at = self._waited = 0.0
        self._begun = self._trained = self._loads = 0
        self._training = False

    def report(self) -> ClusterReport:
        """Simulate, and say what came out."""
        for follower in self._followers:
            self._turn_at(0.0, follower)
        while self._trained < self._updates:
            self._happen()
        flights, settings = self._flights.values(), self._settings
        self._ledger.check(sum(each.left for each in flights), sum(each.time_spent(self._now) for each in flights))
        pauses = self._updates * settings.sync if settings.in_flight_updates else 0.0
        busy = sum(follower.pool.busy for follower in self._followers)
        return ClusterReport(
            settings=settings,
            lags=self._lags,
            updates=self._updates,
            wall_seconds=self._now + pauses,
            trainer_waited_seconds=self._waited,
            busy_slot_seconds=busy - sum(each.busy_after(self._now) for each in flights),
            lost_slot_seconds=0.0,
            failed_responses=0,
            waiting_groups=sum(each.left for each in flights),
            versions_sent=self._transfer.sent,
            policy_gb=self._moved_gb(),
        )

    def _moved_gb(self) -> float:
        """Of a folder version 0 is written too, and a follower reads a version when it begins a batch with it. Where weights
        are sent to followers, or swapped under a batch, each of them takes every version."""
        if self._settings.broadcast or self._settings.in_flight_updates:
            return self._transfer.gb
        return self._settings.policy_gb * (1 + self._transfer.sent + self._loads)

    def _happen(self) -> None:
        """All that happens at the next time at which anything does."""
        now = self._events[0][0]
        self._ledger.number_over_time += self._ledger.inside * (now - self._now)
        self._now = now
        while self._events and self._events[0][0] == now:
            _, what, number, whom = heapq.heappop(self._events)
            if what is _What.TRAINED:
                self._publish()
                if self._trained == self._updates:
                    return
            elif what is _What.GRADED:
                self._ready[number] = now
            elif whom is not None:
                self._turn(whom)
        self._train()

    def _turn(self, follower: _Follower) -> None:
        """A follower whose first batch is sampled has it graded. Then it begins what its engine and back-pressure let it."""
        if follower.begun:
            follower.graded_at = self._now + self._settings.grading_seconds
            heapq.heappush(self._events, (follower.graded_at, _What.GRADED, follower.begun.popleft().number, None))
        version = self._lags.version_at(self._now)
        while len(follower.begun) < self._settings.at_once and self._begun <= self._trained + self._settings.max_ahead:
            if follower.begun and follower.begun[-1].version != version:
                break
            self._loads += version != follower.version
            follower.version = version
            follower.begun.append(self._launch(follower.pool, version))
        if follower.begun:
            self._turn_at(max(follower.begun[0].sampled_at, follower.graded_at), follower)
        else:
            self._idle.append(follower)

    def _turn_at(self, time: float, follower: _Follower) -> None:
        heapq.heappush(self._events, (time, _What.TURN, follower.place, follower))

    def _launch(self, pool: ServerPool, version: int) -> _Batch:
        number, self._begun = self._begun, self._begun + 1
        flight = self._flights[number] = Flight(self._now, self._lengths.of_batch(number))
        work = flight.lengths_PG.ravel() / self._settings.tokens_per_second
        starts, ends = flight.starts_PG.ravel(), flight.ends_PG.ravel()  # views
        for placed in pool.submit(np.arange(len(work)), np.full(len(work), self._now), work):
            starts[placed.jobs], ends[placed.jobs] = placed.starts, placed.ends
        flight.first_starts_PG[:] = self._now  # its version is that of now, wherever a response waits for a slot
        self._ledger.entered += self._settings.prompts
        return _Batch(number, version, flight, float(ends.max()))

    def _train(self) -> None:
        """Start an update, if the trainer is free and a batch is complete."""
        if self._training or not self._ready:
            return
        number = min(self._ready)
        flight, prompts = self._flights.pop(number), self._settings.prompts
        ready_at = np.full(prompts, self._ready.pop(number))
        self._lags.add(self._trained, ready_at, [(flight, np.arange(prompts))])
        self._ledger.leave(prompts, flight.time_spent(self._now))
        self._waited += self._now - self._trained_at
        self._training = True
        heapq.heappush(self._events, (self._now + self._settings.cycle, _What.TRAINED, 0, None))

    def _publish(self) -> None:
        self._trained, self._trained_at, self._training = self._trained + 1, self._now, False
        self._lags.publish(self._transfer.came_at(self._now))
        self._on_update()
        idle, self._idle = self._idle, []
        for follower in idle:
            self._turn_at(self._now, follower)
