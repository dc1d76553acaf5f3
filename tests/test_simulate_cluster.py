"""Cluster simulations against closed forms and against a plain simulation of the same rules."""

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import SMALL, repeated

from gmc.errors import GmcError, UsageError
from gmc.simulator.cluster import simulate_cluster
from gmc.simulator.cluster_report import frontier
from gmc.simulator.cluster_settings import ClusterSettings
from gmc.simulator.lengths import DrawnLengths, RecordedLengths
from gmc.simulator.littles_law import Ledger
from gmc.simulator.plots import save_comparison

pytestmark = pytest.mark.unit

PLENTY = ClusterSettings(
    workers=50, slots=4, tokens_per_second=10, prompts=4, group_size=2, update_seconds=5, sync_seconds=0, max_ahead=0
)


def same(tokens, prompts=4, group_size=2):
    return RecordedLengths(np.full((prompts, group_size), tokens), "equal lengths", prompts=prompts)


def run(settings, lengths=None, updates=100, seed=0):
    lengths = lengths or DrawnLengths(100, 0.6, prompts=settings.prompts, group_size=settings.group_size, seed=1)
    return simulate_cluster(settings, lengths, updates=updates, seed=seed)


def test_nothing_ahead_is_synchronous():
    report = run(replace(PLENTY, sync_seconds=1.0), same(100))
    assert len(report.lags.delays.counts) == 1
    assert report.wall_seconds == pytest.approx(100 * (10 + 5 + 1))
    assert report.trainer_utilization == pytest.approx(5 / 16)
    assert report.worker_utilization == pytest.approx(8 * 10 / (200 * 16))
    assert (report.lags.generating, report.lags.queued, report.lags.token_lag) == (0, 0, 0)
    assert report.waiting_groups == 0


@pytest.mark.parametrize(
    ("ahead", "period", "delay"),
    # A batch is launched when version b - A is out, takes 10 s, and an update takes 5 s: with A = 1, two batches share 15 s.
    [(1, 7.5, 1), (2, 5, 2), (5, 5, 5)],
)
def test_equal_lengths_have_a_period_and_a_delay_in_closed_form(ahead, period, delay):
    report = run(replace(PLENTY, max_ahead=ahead), same(100), updates=1000)
    assert report.wall_seconds / 1000 == pytest.approx(period, rel=0.01)
    assert report.lags.delays.quantile(0.5) == delay
    assert report.lags.delays.mean == pytest.approx(delay, rel=0.01)
    assert report.waiting_groups == ahead * 4


def test_where_staleness_comes_from():
    # Generation takes 10 s and an update 5 s: two versions pass while generating, whatever is ahead of that is queue.
    report = run(replace(PLENTY, max_ahead=6), same(100), updates=1000)
    assert report.lags.generating == pytest.approx(2, rel=0.01)
    assert report.lags.queued == pytest.approx(4, rel=0.01)
    assert report.lags.generating + report.lags.queued == pytest.approx(report.lags.delays.mean)


def test_few_slots_bound_the_updates_by_generation():
    # 8 responses of 10 s on 4 slots take 20 s an update.
    report = run(replace(PLENTY, workers=1, max_ahead=4), same(100), updates=500)
    assert report.wall_seconds / 500 == pytest.approx(20, rel=0.01)
    assert report.worker_utilization == pytest.approx(1, rel=0.02)
    assert report.trainer_utilization == pytest.approx(5 / 20, rel=0.01)


def test_in_flight_updates_pause_workers_and_shorten_the_lag_of_tokens():
    settings = replace(PLENTY, max_ahead=6, sync_seconds=1.0)
    plain, in_flight = run(settings, same(100), 1000), run(replace(settings, in_flight_updates=True), same(100), 1000)
    assert in_flight.wall_seconds / 1000 == pytest.approx(6, rel=0.01)
    # A response takes 10 s of generation, the second half of them with weights one version newer.
    assert in_flight.lags.delays.mean == pytest.approx(6, rel=0.01)
    assert in_flight.lags.token_lag == pytest.approx(5.5, rel=0.01)
    assert plain.lags.token_lag == pytest.approx(plain.lags.delays.mean)
    # The trainer is never idle: all that is not updating is bringing weights.
    assert in_flight.trainer_utilization == pytest.approx(5 / 6, rel=0.01)


def test_stragglers_slow_the_workers_down():
    settings = replace(PLENTY, workers=8, slots=1, max_ahead=3)
    report, even = run(replace(settings, straggler_share=0.5, straggler_slowdown=4.0), same(100)), run(settings, same(100))
    # Four workers at full speed and four at a quarter give 5 responses each 10 s in place of 8.
    assert even.wall_seconds / 100 == pytest.approx(10, rel=0.05)
    assert report.wall_seconds / 100 == pytest.approx(16, rel=0.05)
    all_slow = run(replace(settings, straggler_share=1.0, straggler_slowdown=4.0), same(100))
    assert all_slow.wall_seconds / 100 == pytest.approx(40, rel=0.05)


def test_failures_lose_work_and_no_response():
    settings = replace(PLENTY, workers=8, slots=1, max_ahead=3, mtbf_hours=200 / 3600, restart_seconds=40.0)
    report = run(settings, same(100), updates=2000)
    # A worker is up 200 of 240 s, and a response of 10 s takes (e^(10/200) - 1) · 200 s of running time with its lost attempts.
    attempt = 200 * (math.exp(10 / 200) - 1)
    expected = attempt * 240 / 200
    assert report.wall_seconds / 2000 == pytest.approx(expected, rel=0.02)
    assert report.failed_responses > 500
    assert report.lags.delays.responses == 2000 * 8
    slot_time = 8 * report.wall_seconds
    assert report.lost_slot_seconds / slot_time == pytest.approx((attempt - 10) / expected, rel=0.1)
    assert report.worker_utilization == pytest.approx(200 / 240, rel=0.02)


def test_workers_that_fail_before_any_response_ends_are_refused():
    with pytest.raises(UsageError, match=r"responses are cut off by failures 20 times for each that ends.*longer --mtbf"):
        run(replace(PLENTY, mtbf_hours=0.01, restart_seconds=1.0), same(10_000))


def plain_simulation(config, lengths, updates):
    """The same rules response by response, with a heap of slots and lists for everything else."""
    slots = [0.0] * (config.workers * config.slots)
    published, waiting, starts_of = [0.0], [], {}
    rows, launched = [], 0
    cycle = config.update_seconds + config.sync_seconds
    for update in range(updates):
        while launched <= update + config.max_ahead:
            for group, row in enumerate(lengths.of_batch(launched).tolist()):
                begun, ended = [], []
                for tokens in row:
                    start = max(published[-1], heapq.heappop(slots))
                    begun.append(start)
                    ended.append(start + tokens / config.tokens_per_second)
                    heapq.heappush(slots, ended[-1])
                starts_of[launched, group] = min(begun)
                waiting.append((max(ended), launched, group))
            launched += 1
        waiting.sort()
        start = max(published[-1], waiting[config.prompts - 1][0])
        for ready, batch, group in waiting[: config.prompts]:
            version, at_ready = (sum(time <= moment for time in published[1:]) for moment in (starts_of[batch, group], ready))
            rows.append((update - version, at_ready - version))
        waiting = waiting[config.prompts :]
        published.append(start + cycle)
    return rows, published[-1]


@examples(60)
@given(
    st.lists(st.lists(st.integers(0, 300), min_size=2, max_size=2), min_size=3, max_size=12),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 4),
    st.integers(1, 20),
)
def test_clusters_equal_a_plain_simulation(table, workers, slots, ahead, updates):
    config = ClusterSettings(
        workers=workers,
        slots=slots,
        tokens_per_second=8,
        prompts=3,
        group_size=2,
        update_seconds=4,
        sync_seconds=0.5,
        max_ahead=ahead,
    )
    lengths = RecordedLengths(np.array(table), "a table", prompts=3)
    report = simulate_cluster(config, lengths, updates=updates, seed=0)
    rows, end = plain_simulation(config, lengths, updates)
    counts = np.bincount([delay for delay, _ in rows])
    assert report.lags.delays.counts.tolist() == (counts * 2).tolist()
    assert report.lags.generating == pytest.approx(np.mean([generating for _, generating in rows]))
    assert report.wall_seconds == pytest.approx(end)


@examples(25)
@given(st.integers(0, 1000), st.integers(0, 6), st.booleans(), st.sampled_from([None, 0.02]), st.sampled_from([0.0, 0.4]))
def test_a_cluster_repeats_itself_and_loses_nobody(seed, ahead, in_flight, mtbf, share):
    config = replace(SMALL, max_ahead=ahead, in_flight_updates=in_flight, mtbf_hours=mtbf, straggler_share=share)
    summary = repeated(simulate_cluster, config, seed)
    assert summary["waiting_groups"] == ahead * 3
    shares = summary["trainer_utilization"] + summary["trainer_waiting_share"] + summary["sync_share"]
    assert shares == pytest.approx(1)
    assert summary["delay"]["mean"] <= ahead + 1e-9


def test_more_room_ahead_means_more_speed_and_more_delay_and_the_frontier_shows_it():
    config = replace(PLENTY, workers=2, prompts=8, group_size=4)
    lengths = DrawnLengths(100, 0.6, prompts=8, group_size=4, seed=1)
    reports = [
        simulate_cluster(replace(config, workers=workers, max_ahead=ahead), lengths, updates=200, seed=0)
        for workers, ahead in ((4, 0), (8, 0), (8, 1), (8, 2), (64, 2))
    ]
    speeds = [report.updates_per_hour for report in reports]
    assert speeds[1] < speeds[2] < speeds[3]
    assert reports[1].lags.delays.mean < reports[2].lags.delays.mean
    assert frontier(reports) == [True, True, True, True, True]
    slower = simulate_cluster(replace(config, workers=8, max_ahead=0, update_seconds=9), lengths, updates=200, seed=0)
    assert frontier([reports[1], slower]) == [True, False]
    assert frontier([reports[1], reports[1]]) == [True, True]


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_clusters_are_drawn_side_by_side_and_the_same_again(name, start, tmp_path):
    reports = [run(replace(PLENTY, max_ahead=ahead), updates=30) for ahead in (0, 4)]
    pictures = []
    for _ in range(2):
        save_comparison(tmp_path / name, reports, frontier(reports), "title")
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0].startswith(start)
    assert pictures[0] == pictures[1]
    save_comparison(tmp_path / name, reports[::-1], frontier(reports), "title")
    assert (tmp_path / name).read_bytes() != pictures[0]


def test_little_s_law_is_an_error_when_it_fails():
    Ledger(entered=3, left=2, number_over_time=1000.0, time_spent=400.0).check(1, 600.0 + 1e-7)
    Ledger().check(0, 0.0)
    with pytest.raises(GmcError, match=r"breaks Little's law: 1000 in the system over time, 1001 spent in it"):
        Ledger(entered=3, left=2, number_over_time=1000.0, time_spent=400.0).check(1, 601.0)
    with pytest.raises(GmcError, match="3 groups launched, 2 trained, 0 waiting: groups were lost"):
        Ledger(entered=3, left=2).check(0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workers": 0}, "--workers 0: must be at least 1"),
        ({"slots": 0}, "--slots 0"),
        ({"tokens_per_second": 0.0}, "--tokens-per-second 0: must be above 0"),
        ({"update_seconds": -1.0}, "--update-seconds -1: must be above 0"),
        ({"sync_seconds": -1.0}, "--sync-seconds -1: must be at least 0"),
        ({"max_ahead": -1}, "--max-ahead -1"),
        ({"mtbf_hours": 0.0}, "--mtbf 0: must be at least 0.01 hours"),
        ({"straggler_share": 1.5}, "--straggler-share 1.5: is a share of the workers, from 0 to 1"),
        ({"straggler_slowdown": 0.5}, "--straggler-slowdown 0.5: must be at least 1"),
        ({"tokens_per_second": math.nan}, "--tokens-per-second nan"),
        ({"workers": 100_000_000}, "at most 20,000,000 can be simulated"),
        ({"max_ahead": 100_000_000}, "responses in flight"),
    ],
)
def test_impossible_clusters_are_refused_by_name(change, message):
    with pytest.raises(UsageError) as error:
        replace(PLENTY, **change)
    assert message in str(error.value)
