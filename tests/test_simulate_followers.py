"""Forecasts of live mode against closed forms, and against followers written as loops that look at the clock each second."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import SMALL, repeated

from gmc.errors import UsageError
from gmc.simulator.cluster_settings import ClusterSettings
from gmc.simulator.followers import simulate_followers
from gmc.simulator.lengths import RecordedLengths

pytestmark = pytest.mark.unit

ONE = ClusterSettings(
    workers=1, slots=8, tokens_per_second=10, prompts=4, group_size=2, update_seconds=1, max_ahead=20, follow=True
)


def run(config, tokens=100, updates=400):
    lengths = RecordedLengths(np.full((4, 2), tokens), "equal", prompts=4)
    return simulate_followers(config, lengths, updates=updates, seed=0)


@pytest.mark.parametrize(("grading", "delay"), [(0, 1), (5, 1), (10, 2)])
def test_a_batch_that_is_begun_beside_grading_is_older_by_an_update(grading, delay):
    # Sampled in 10 s, so a batch every 10 s: number k is begun at 10 k, and k - 1 or k - 2 batches are trained by then.
    report = run(replace(ONE, grading_seconds=grading))
    assert report.wall_seconds / 400 == pytest.approx(10, rel=0.01)
    assert report.lags.delays.mean == pytest.approx(delay, rel=0.01)
    assert report.worker_utilization == pytest.approx(1, rel=0.01)


def test_grading_that_takes_longer_than_sampling_bounds_the_pace():
    assert run(replace(ONE, grading_seconds=25)).wall_seconds / 400 == pytest.approx(25, rel=0.01)


def test_back_pressure_bounds_the_delay_however_many_follow():
    report = run(replace(ONE, workers=50, max_ahead=3, update_seconds=20))
    assert report.lags.delays.mean == pytest.approx(3, rel=0.01)
    assert report.trainer_utilization == pytest.approx(1, rel=0.01)
    assert report.waiting_groups == 3 * 4


def test_a_second_batch_fills_the_places_that_long_responses_leave():
    # One response of 100 s and seven of 10 s: alone a batch takes 100 s, two of them share the places.
    lengths = RecordedLengths(np.array([[1000, 100], [100, 100], [100, 100], [100, 100]]), "one long", prompts=4)
    alone, both = (
        simulate_followers(replace(ONE, at_once=many), lengths, updates=100, seed=0).wall_seconds / 100 for many in (1, 2)
    )
    assert alone == pytest.approx(100, rel=0.02)
    assert both < 65


def test_weights_that_are_sent_reach_every_follower_and_a_folder_is_read_by_who_begins_a_batch():
    # Two followers that begin a batch each 10 s, while the trainer makes two versions: every one of them is written.
    config = replace(ONE, workers=2, update_seconds=5, policy_gb=3, bandwidth=1e12)
    folder, sent = run(config), run(replace(config, broadcast=True))
    assert folder.policy_gb == pytest.approx(3 * (400 + 400), rel=0.02)
    assert sent.policy_gb == 3 * 2 * 400


def follower(clock, config, lengths) -> Iterator[None]:
    """One follower as gmc.live.follow has it; each pass of the loop that yields is a second."""
    begun, slots, graded_at, held = [], [0] * config.slots, 0, None
    while True:
        while len(begun) < config.at_once and clock["claimed"] <= clock["trained"] + config.max_ahead:
            if begun and begun[-1][1] != clock["trained"]:
                break
            if held != clock["trained"]:
                held = clock["trained"]
                clock["read"] += 1
            number, clock["claimed"] = clock["claimed"], clock["claimed"] + 1
            ends = []
            for tokens in lengths.of_batch(number).ravel().tolist():
                place = slots.index(min(slots))
                slots[place] = max(slots[place], clock["now"]) + tokens
                ends.append(slots[place])
            begun.append((number, clock["trained"], max(ends)))
        if not begun:
            yield
            continue
        number, version, sampled_at = begun[0]
        while clock["now"] < max(sampled_at, graded_at):
            yield
        graded_at = clock["now"] + config.grading_seconds
        clock["graded"].append((graded_at, number, version))
        begun.pop(0)


def plain(config, lengths, updates):
    """Second by second: the trainer first, then what is graded, then each follower in turn."""
    clock = {"now": 0, "trained": 0, "claimed": 0, "graded": [], "read": 0}
    followers = [follower(clock, config, lengths) for _ in range(config.workers)]
    delays, ends_at = [], None
    while True:
        if ends_at == clock["now"]:
            clock["trained"], ends_at = clock["trained"] + 1, None
            if clock["trained"] == updates:
                return delays, clock["now"], clock["read"]
        for each in followers:
            next(each)
        ready = [(number, version) for graded_at, number, version in clock["graded"] if graded_at <= clock["now"]]
        if ends_at is None and ready:
            number, version = min(ready)
            clock["graded"] = [each for each in clock["graded"] if each[1] != number]
            delays.append(clock["trained"] - version)
            ends_at = clock["now"] + config.update_seconds
        clock["now"] += 1


@examples(60)
@given(
    st.lists(st.lists(st.integers(1, 30), min_size=2, max_size=2), min_size=2, max_size=10),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 2),
    st.integers(0, 5),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_followers_equal_loops_that_look_each_second(table, workers, slots, at_once, ahead, grading, update_seconds):
    """No update ends when a batch is ready: times of sampling and grading are multiples of 16, an update is one second more,
    and there are fewer than 16. Which of the two comes first at one moment is nobody's business."""
    config = ClusterSettings(
        workers=workers,
        slots=slots,
        tokens_per_second=1,
        prompts=2,
        group_size=2,
        update_seconds=16 * update_seconds + 1,
        max_ahead=ahead,
        follow=True,
        at_once=at_once,
        grading_seconds=16 * grading,
        policy_gb=2,
        bandwidth=1e12,
    )
    lengths = RecordedLengths(16 * np.array(table), "a table", prompts=2)
    report = simulate_followers(config, lengths, updates=15, seed=0)
    delays, end, read = plain(config, lengths, 15)
    assert report.lags.delays.counts.tolist() == (np.bincount(delays) * 4).tolist()
    assert report.wall_seconds == pytest.approx(end)
    assert report.policy_gb == 2 * (16 + read)  # versions 0 to 15 are written


@examples(20)
@given(st.integers(0, 1000), st.integers(0, 6), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.4]))
def test_a_forecast_repeats_itself_and_loses_nobody(seed, ahead, in_flight, overlap, share):
    overlap = overlap and not in_flight
    config = replace(SMALL, max_ahead=ahead, in_flight_updates=in_flight, overlap_sync=overlap, straggler_share=share)
    summary = repeated(simulate_followers, replace(config, follow=True, grading_seconds=3), seed)
    assert summary["trainer_utilization"] + summary["trainer_waiting_share"] <= 1 + 1e-9


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"follow": False, "at_once": 2}, "--at-once and --grading-seconds are a follower's; add --follow"),
        ({"mtbf_hours": 1.0}, "--mtbf with --follow"),
        ({"in_flight_updates": True, "at_once": 2}, "--in-flight-updates with --at-once"),
    ],
)
def test_what_followers_do_not_do_is_refused(changes, reason):
    with pytest.raises(UsageError, match=reason):
        replace(ONE, **changes)
