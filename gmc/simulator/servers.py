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

_SMALL_POOL = 64
_MOST_FAILURES_A_JOB = 20


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
            yield self.settle_next_retry()
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

    def settle_next_retry(self) -> Placed:
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
        servers = self._earliest(count)
        free_at, arrivals = self._free_at[servers], arrivals[:count]
        starts = np.maximum(arrivals, free_at)
        ends = starts + work[:count] * self._slowness[servers]
        released, fails_at = ends, np.full(count, np.inf)
        if self._failures is not None:
            fails_at = self._failures.next_at[servers]
            failing = fails_at < ends
            fails_at = np.where(failing, fails_at, np.inf)
            released = np.where(failing, fails_at + self._failures.down_time, ends)
        # A job is placed exactly if its server is free no later than any released before it in this chunk (or both are idle
        # when it arrives), if the server is up at its start, and if no job has come back to the queue's head by then.
        earlier_release = np.minimum.accumulate(np.concatenate(([np.inf], released[:-1])))
        exact = free_at <= np.maximum(arrivals, earlier_release)
        if self._failures is not None:
            head = np.minimum.accumulate(np.concatenate(([self.next_retry], fails_at[:-1])))
            exact &= (starts <= head) & (starts < self._failures.next_at[servers])
            exact[0] = True
        placed = count if exact.all() else int(np.argmin(exact))
        self._chunk = min(len(self._free_at), max(16, 2 * placed))
        return self._commit(jobs[:placed], work[:placed], servers[:placed], starts[:placed], ends[:placed], fails_at[:placed])

    def _earliest(self, count: int) -> Integers:
        """The `count` servers that are free first, in order; ties by number."""
        last = np.partition(self._free_at, count - 1)[count - 1]
        candidates = np.flatnonzero(self._free_at <= last)
        return candidates[np.argsort(self._free_at[candidates], kind="stable")][:count]

    def _commit(
        self, jobs: Integers, work: Floats, servers: Integers, starts: Floats, ends: Floats, fails_at: Floats
    ) -> Placed:
        failing = np.isfinite(fails_at)
        if self._failures is not None and failing.any():
            lost = fails_at[failing] - starts[failing]
            self.lost += float(lost.sum())
            self.failed_jobs += len(lost)
            columns = (fails_at, jobs, work, starts)
            for retry in zip(*(column[failing].tolist() for column in columns), strict=True):
                heapq.heappush(self._retries, _Retry(*retry))
            self._free_at[servers] = np.where(failing, fails_at + self._failures.down_time, ends)
            self._failures.advance(servers[failing])
            if self.failed_jobs > _MOST_FAILURES_A_JOB * (self._finished + len(self._free_at)):
                raise UsageError(
                    f"responses are cut off by failures {_MOST_FAILURES_A_JOB} times for each that ends; "
                    "give a longer --mtbf, shorter responses or more tokens a second"
                )
        else:
            self._free_at[servers] = ends
        self._finished += len(jobs) - int(failing.sum())
        self.busy += float((np.minimum(ends, fails_at) - starts).sum())
        return Placed(jobs, starts, np.where(failing, np.nan, ends))


def queue_starts(arrivals_J: Floats, service_J: Floats, servers: int) -> Floats:
    """Start times of J jobs, first come first served by identical servers; `arrivals_J` is sorted.

    The waiting times are the result minus the arrivals. Raises `ValueError` for unsorted arrivals or no server.
    """
    if servers < 1 or len(arrivals_J) != len(service_J) or (np.diff(arrivals_J) < 0).any():
        raise ValueError("queue_starts needs at least one server and one service time for each of the sorted arrivals")
    starts = np.empty(len(arrivals_J))
    if servers > _SMALL_POOL:
        for placed in ServerPool(servers).submit(np.arange(len(arrivals_J)), arrivals_J, service_J):
            starts[placed.jobs] = placed.starts
        return starts
    free_at = [0.0] * servers
    for job, (arrival, service) in enumerate(zip(arrivals_J.tolist(), service_J.tolist(), strict=True)):
        start = max(arrival, free_at[0])
        starts[job] = start
        heapq.heapreplace(free_at, start + service)
    return starts
