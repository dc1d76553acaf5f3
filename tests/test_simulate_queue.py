"""The queue kernel against queueing theory, against a plain heap, and with failures against a plain event simulation."""

import heapq
import math

import numpy as np
import pytest
from examples import examples, thinned
from hypothesis import given
from hypothesis import strategies as st

from gmc.simulator.failures import Failures
from gmc.simulator.servers import ServerPool

pytestmark = pytest.mark.unit


def erlang_c_wait(servers, load):
    """Mean wait in M/M/c at service rate 1 and utilization `load` (Erlang C)."""
    offered = servers * load
    below = sum(offered**k / math.factorial(k) for k in range(servers))
    at_limit = offered**servers / math.factorial(servers) / (1 - load)
    return at_limit / (below + at_limit) / (servers * (1 - load))


def markovian(servers, load, jobs, seed):
    generator = np.random.default_rng(seed)
    return np.cumsum(generator.exponential(1 / (servers * load), jobs)), generator.exponential(1.0, jobs)


@pytest.mark.parametrize(("servers", "load"), thinned([(1, 0.5), (4, 0.7), (16, 0.8)], 2))
def test_mean_wait_in_m_m_c_is_erlang_c(servers, load):
    arrivals, service = markovian(servers, load, 1_500_000, seed=7)
    wait = (heap_starts(arrivals, service, servers) - arrivals).mean()
    assert wait == pytest.approx(erlang_c_wait(servers, load), rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_mean_wait_in_m_d_1_is_pollaczek_khinchine(load):
    arrivals, _ = markovian(1, load, 300_000, seed=3)
    wait = (heap_starts(arrivals, np.ones(len(arrivals)), 1) - arrivals).mean()
    assert wait == pytest.approx(load / (2 * (1 - load)), rel=0.02)


def pool_starts(arrivals, service, servers):
    starts = np.full(len(arrivals), np.nan)
    for placed in ServerPool(servers).submit(np.arange(len(arrivals)), arrivals, service):
        starts[placed.jobs] = placed.starts
    return starts


@pytest.mark.parametrize(
    ("servers", "load", "jobs"),
    [(1, 0.8, 5_000), (4, 0.9, 10_000), (16, 0.9, 20_000), (100, 0.95, 60_000), (700, 0.99, 60_000)],
)
def test_servers_placed_in_chunks_equal_the_heap(servers, load, jobs):
    arrivals, service = markovian(servers, load, jobs, seed=1)
    assert np.array_equal(pool_starts(arrivals, service, servers), heap_starts(arrivals, service, servers))
    assert (pool_starts(arrivals, service, servers) > arrivals).any()


def heap_starts(arrivals, service, servers):
    free, starts = [0.0] * servers, []
    for arrival, time in zip(arrivals.tolist(), service.tolist(), strict=True):
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + time)
        starts.append(start)
    return np.array(starts)


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_the_chunked_kernel_equals_the_heap_with_ties_and_empty_jobs(jobs, servers):
    arrivals = np.cumsum([float(gap) for gap, _ in jobs])
    service = np.array([float(time) for _, time in jobs])
    assert np.array_equal(pool_starts(arrivals, service, servers), heap_starts(arrivals, service, servers))


@examples(60)
@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=8), st.integers(1, 20))
def test_batches_that_arrive_together_equal_the_heap(batches, servers):
    arrivals = np.concatenate([np.full(len(batch), 7.0 * place) for place, batch in enumerate(batches)])
    service = np.concatenate([np.array(batch, dtype=float) for batch in batches])
    pool, starts, first = ServerPool(servers), [], 0
    for place, batch in enumerate(batches):
        jobs = np.arange(first, first + len(batch))
        for placed in pool.submit(jobs, np.full(len(batch), 7.0 * place), np.array(batch, dtype=float)):
            starts.extend(placed.starts.tolist())
        first += len(batch)
    assert starts == heap_starts(arrivals, service, servers).tolist()
    assert pool.busy == pytest.approx(service.sum())


def events(batches, worker_of_slot, failure_times, down_time, slowness):
    """First starts, starts and ends by plain event simulation: every slot is a state, every moment is looked at in order."""
    slots = len(worker_of_slot)
    state = ["free"] * slots
    free_since = [0.0] * slots
    running = [None] * slots
    fresh, retries, results, first = [], [], {}, {}
    queue = [(time, 2, place, batch) for place, (time, batch) in enumerate(batches)]
    for worker, times in failure_times.items():
        for time in times:
            queue += [(time, 1, worker, "fail"), (time + down_time, 0, worker, "back")]
    heapq.heapify(queue)
    tokens = 0
    while queue:
        now, kind, which, what = heapq.heappop(queue)
        if kind == 2:
            fresh.extend(what)
        elif what == "fail":
            for slot in [s for s in range(slots) if worker_of_slot[s] == which]:
                if running[slot] is not None:
                    heapq.heappush(retries, (now, *running[slot][:2]))
                running[slot], state[slot] = None, "down"
        elif what == "back":
            for slot in [s for s in range(slots) if worker_of_slot[s] == which]:
                state[slot], free_since[slot] = "free", now
        elif running[which] is not None and running[which][2] == what:
            job = running[which][0]
            results[job] = (running[which][3], now)
            running[which], state[which], free_since[which] = None, "free", now
        while (retries or fresh) and "free" in state:
            slot = min((s for s in range(slots) if state[s] == "free"), key=lambda s: (free_since[s], s))
            job, work = heapq.heappop(retries)[1:] if retries else fresh.pop(0)
            tokens += 1
            state[slot], running[slot] = "busy", (job, work, tokens, now)
            first.setdefault(job, now)
            heapq.heappush(queue, (now + work * slowness[slot], 3, slot, tokens))
    return first, results


@examples(80)
@given(
    st.lists(st.lists(st.floats(0.1, 30), min_size=1, max_size=25), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 10_000),
    st.booleans(),
)
def test_failures_and_slow_workers_equal_an_event_simulation(batches, workers, slots, seed, uneven):
    worker_of_slot = np.repeat(np.arange(workers), slots)
    slowness = np.where(worker_of_slot % 2 == 1, 3.0, 1.0) if uneven else np.ones(len(worker_of_slot))

    def failures():
        return Failures(worker_of_slot, mean_time=60.0, down_time=4.0, seed=seed)

    numbered, first_job = [], 0
    for place, batch in enumerate(batches):
        numbered.append((13.0 * place, list(enumerate(batch, start=first_job))))
        first_job += len(batch)
    times = {worker: [] for worker in range(workers)}
    source = failures()
    for worker in range(workers):
        while not times[worker] or times[worker][-1] < 5000:
            slot = np.array([worker * slots])
            times[worker].append(float(source.next_at[slot[0]]))
            source.advance(slot)
    expected_first, expected = events(numbered, worker_of_slot, times, 4.0, slowness)

    pool = ServerPool(len(worker_of_slot), slowness=slowness, failures=failures())
    first, found = {}, {}

    def note(placed):
        for job, start, end in zip(placed.jobs.tolist(), placed.starts.tolist(), placed.ends.tolist(), strict=True):
            first.setdefault(job, start)
            if not math.isnan(end):
                assert job not in found
                found[job] = (start, end)

    for arrival, batch in numbered:
        jobs = np.array([job for job, _ in batch])
        for placed in pool.submit(jobs, np.full(len(batch), arrival), np.array([work for _, work in batch])):
            note(placed)
    while pool.next_retry < math.inf:
        note(pool.place_next_retry())
    assert found.keys() == expected.keys()
    for job, (start, end) in expected.items():
        assert found[job] == pytest.approx((start, end), rel=1e-9)
        assert first[job] == pytest.approx(expected_first[job], rel=1e-9)
    useful = sum(end - start for start, end in found.values())
    assert pool.busy == pytest.approx(useful + pool.lost)


def test_failures_are_exponential_with_the_given_mean_and_shared_by_a_worker():
    failures = Failures(np.repeat(np.arange(50_000), 2), mean_time=30.0, down_time=1.0, seed=4)
    first = failures.next_at.copy()
    assert np.array_equal(first[0::2], first[1::2])
    assert first.mean() == pytest.approx(30, rel=0.02)
    assert np.median(first) == pytest.approx(30 * math.log(2), rel=0.03)
    failures.advance(np.arange(100_000))
    gaps = failures.next_at - first - 1.0
    assert gaps.mean() == pytest.approx(30, rel=0.02)
    assert abs(np.corrcoef(first[0::2], gaps[0::2])[0, 1]) < 0.02
