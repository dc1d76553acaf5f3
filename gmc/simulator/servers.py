"""The queue kernel: first come, first served, by a pool of servers (G/G/c in Kendall's notation), exact and vectorized.

The next job goes to the server that is free first. Jobs are placed many at a time: the m servers that are free first take
the next m jobs, for as long as no server released inside that chunk would have been free earlier. Servers may differ in
speed, and may fail: a job on a failed server is lost, joins the queue again at its head, and starts from the beginning.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmc.errors import UsageError
from gmc.simulator.failures import Failures

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MOST_FAILURES_A_JOB = 20
_STREAM = 0x57A6


def slowness_of_workers(workers: int, slow_share: float, slowdown: float, seed: int) -> Floats:
    """How many times longer each worker takes: `slowdown` for that share of them, drawn from the seed, and 1 for the others."""
    slow = np.random.default_rng([seed, _STREAM]).permutation(workers)[: round(slow_share * workers)]
    slowness_W = np.ones(workers)
    slowness_W[slow] = slowdown
    return slowness_W


class Placed(NamedTuple):
    """Jobs that were given a server: ids, start and end times (the end is NaN where the server failed on the way)."""

    jobs: Integers
    starts: Floats
    ends: Floats


class _Retry(NamedTuple):
    """A job cut off by a failure: when it joins the queue again, and when the attempt that failed started."""

    arrival: float
    job: int
    work: float
    started: float


class _Attempts(NamedTuple):
    """Jobs and the servers that would take them, an entry a job.

    ends: when the job would end; fails_at: when its server fails before that, infinite where it does not; released: when the
    server can take another job, after its restart if it failed.
    """

    jobs: Integers
    work: Floats
    servers: Integers
    starts: Floats
    ends: Floats
    fails_at: Floats
    released: Floats

    def first(self, count: int) -> "_Attempts":
        return _Attempts._make(column[:count] for column in self)


class ServerPool:
    """`servers` servers and the jobs that failures sent back.

    slowness: service time of a job on each server, as a multiple of its work (1 by default); failures: when each server
    fails and how long it is down, or None. Times are in any one unit. Raises `UsageError` when jobs hardly ever end before
    their server fails.
    """

    def __init__(self, servers: int, *, slowness: Floats | None = None, failures: Failures | None = None) -> None:
        self._free_at = np.zeros(servers)
        self._slowness = np.ones(servers) if slowness is None else slowness
        self._failures = failures
        self._retries: list[_Retry] = []  # a heap
        self._chunk = servers
        self.busy = 0.0
        """Server time spent on jobs placed so far, the lost part included."""
        self.lost = 0.0
        """Server time spent on jobs that failures cut off."""
        self.failed_jobs = 0
        """How often a job was cut off by a failure."""
        self._finished = 0

    def submit(self, jobs: Integers, arrivals: Floats, work: Floats) -> Iterator[Placed]:
        """Place jobs that arrive now or later (sorted by arrival), older retries first as they come up."""
        while len(jobs) and self.next_retry < arrivals[0]:
            yield self.place_next_retry()
        done = 0
        while done < len(jobs):
            arrival = float(arrivals[done])
            if self._failures is not None:
                self._failures.restart_idle(self._free_at, arrival)
                if self.next_retry <= (earliest := max(arrival, float(self._free_at.min()))):
                    yield self._place_retries(earliest)
                    continue
            placed = self._place(jobs[done:], arrivals[done:], work[done:])
            done += len(placed.jobs)
            yield placed

    def place_next_retry(self) -> Placed:
        """Place the earliest of the jobs that failures sent back; right only when no job arrives before `next_retry`."""
        return self._place_retries(self.next_retry)

    @property
    def next_retry(self) -> float:
        """When the first job that waits to be placed again joins the queue; infinite when there is none."""
        return self._retries[0].arrival if self._retries else float("inf")

    def lost_after(self, time: float) -> float:
        """The part of `lost` (and of `busy`) that lies after `time`, given that every job sent back by then is placed."""
        return sum(retry.arrival - max(retry.started, time) for retry in self._retries if retry.arrival > time)

    def _place_retries(self, until: float) -> Placed:
        """Place the first of the retries that arrive by `until`."""
        due: list[_Retry] = []
        while self.next_retry <= until:
            due.append(heapq.heappop(self._retries))
        arrivals = np.array([retry.arrival for retry in due])
        if self._failures is not None:
            self._failures.restart_idle(self._free_at, due[0].arrival)
        placed = self._place(np.array([retry.job for retry in due]), arrivals, np.array([retry.work for retry in due]))
        for retry in due[len(placed.jobs) :]:
            heapq.heappush(self._retries, retry)
        return placed

    def _place(self, jobs: Integers, arrivals: Floats, work: Floats) -> Placed:
        """Place as many of the first jobs as one chunk can hold exactly; at least one."""
        count = min(len(jobs), len(self._free_at), self._chunk)
        attempts = self._attempt(jobs[:count], arrivals[:count], work[:count])
        placed = self._exact(attempts, arrivals[:count])
        self._chunk = min(len(self._free_at), max(16, 2 * placed))
        return self._commit(attempts.first(placed))

    def _attempt(self, jobs: Integers, arrivals: Floats, work: Floats) -> _Attempts:
        """The jobs on the servers that are free first, as if each stayed on its server until it ends or the server fails."""
        servers = self._earliest(len(jobs))
        starts = np.maximum(arrivals, self._free_at[servers])
        ends = starts + work * self._slowness[servers]
        fails_at = np.full(len(jobs), np.inf)
        released = ends
        if self._failures is not None:
            next_at = self._failures.next_at[servers]
            fails_at = np.where(next_at < ends, next_at, np.inf)
            released = np.where(next_at < ends, next_at + self._failures.down_time, ends)
        return _Attempts(jobs, work, servers, starts, ends, fails_at, released)

    def _exact(self, attempts: _Attempts, arrivals: Floats) -> int:
        """How many of the first attempts are what one job after the other would give; at least one.

        That needs a server that is free no later than any released before it in this chunk (or both idle when the job arrives),
        a server that is up when the job starts, and no job that failed before it and is back at the queue's head by then.
        """
        earlier_release = np.minimum.accumulate(np.concatenate(([np.inf], attempts.released[:-1])))
        exact = self._free_at[attempts.servers] <= np.maximum(arrivals, earlier_release)
        if self._failures is not None:
            head = np.minimum.accumulate(np.concatenate(([self.next_retry], attempts.fails_at[:-1])))
            exact &= (attempts.starts <= head) & (attempts.starts < self._failures.next_at[attempts.servers])
            exact[0] = True
        return len(exact) if exact.all() else int(np.argmin(exact))

    def _earliest(self, count: int) -> Integers:
        """The `count` servers that are free first, in order; ties by number."""
        last = np.partition(self._free_at, count - 1)[count - 1]
        candidates = np.flatnonzero(self._free_at <= last)
        return candidates[np.argsort(self._free_at[candidates], kind="stable")][:count]

    def _commit(self, attempts: _Attempts) -> Placed:
        """Let the attempts happen: servers are taken, and jobs that fail wait to be placed again."""
        self._free_at[attempts.servers] = attempts.released
        failing = np.isfinite(attempts.fails_at)
        if self._failures is not None and failing.any():
            self._failures.advance(attempts.servers[failing])
            columns = (attempts.fails_at, attempts.jobs, attempts.work, attempts.starts)
            for retry in zip(*(column[failing].tolist() for column in columns), strict=True):
                heapq.heappush(self._retries, _Retry(*retry))
            self.lost += float((attempts.fails_at - attempts.starts)[failing].sum())
            self.failed_jobs += int(failing.sum())
            if self.failed_jobs > _MOST_FAILURES_A_JOB * (self._finished + len(self._free_at)):
                raise UsageError(
                    f"responses are cut off by failures {_MOST_FAILURES_A_JOB} times for each that ends; "
                    "give a longer --mtbf, shorter responses or more tokens a second"
                )
        self._finished += int((~failing).sum())
        self.busy += float((np.minimum(attempts.ends, attempts.fails_at) - attempts.starts).sum())
        return Placed(attempts.jobs, attempts.starts, np.where(failing, np.nan, attempts.ends))
