"""`length:mean=M`: the clock is found from the first batches and gives the mean delay asked for."""

import json
import math
from itertools import chain
from statistics import mean

import numpy as np
import pytest
from delay_drives import constant

from gmc.delays.registry import parse_delay
from gmc.errors import DataError, UsageError
from gmc.testing.delays import drive

pytestmark = pytest.mark.unit


def lognormal(seed, prompts=8, group_size=8, average=570.0, sigma=0.6):
    def lengths(batch):
        generator = np.random.default_rng([seed, batch])
        location = math.log(average) - sigma**2 / 2
        return np.rint(generator.lognormal(location, sigma, (prompts, group_size))).astype(int).tolist()

    return lengths


@pytest.mark.parametrize(("spec", "seed"), [("length:mean=160", 1), ("length:mean=160", 2), ("length:mean=160:group=mean", 3)])
def test_the_mean_delay_is_the_one_asked_for_within_5_percent(spec, seed):
    model = parse_delay(spec, prompts=8, group_size=8, seed=seed, updates=400)
    run = drive(model, 400, lognormal(seed))
    assert mean(chain(*run.delays)) == pytest.approx(160, rel=0.05)


def test_the_batches_that_calibrate_are_of_version_0_and_used_like_others():
    model = parse_delay("length:mean=12", prompts=8, group_size=2, seed=0, updates=40)
    assert model.calibration_batches == 6
    run = drive(model, 40, lognormal(0, group_size=2))
    assert [version for batch, version in run.launches if batch < 6] == [0] * 6
    assert len({ref for groups in run.taken for ref in groups}) == 8 * 40


def test_the_clock_is_a_pure_function_of_seed_and_lengths():
    def clock(seed, lengths):
        model = parse_delay("length:mean=10", prompts=4, group_size=2, seed=seed, updates=30)
        model.calibrate([lengths(batch) for batch in range(model.calibration_batches)])
        return model.state_dict()["clock"]

    assert clock(0, lognormal(1, 4, 2)) == clock(0, lognormal(1, 4, 2))
    assert clock(0, lognormal(1, 4, 2)) != clock(0, lognormal(2, 4, 2))
    # Lengths ten times as long need a clock ten times as slow, up to the rounding of lengths.
    tenfold = clock(0, lognormal(1, 4, 2)) / clock(0, lognormal(1, 4, 2, average=5700.0))
    assert tenfold == pytest.approx(10, rel=0.01)


def test_a_known_clock_is_kept_when_more_updates_are_planned():
    def run(updates, state=None):
        model = parse_delay("length:mean=10", prompts=4, group_size=2, seed=0, updates=updates)
        model.load_state_dict(state or {})
        return model, drive(model, updates, lognormal(1, 4, 2))

    first, short = run(30)
    again, long = run(50, json.loads(json.dumps(first.state_dict())))
    assert again.calibration_batches == 0
    assert again.state_dict() == first.state_dict()
    assert long.taken[:30] == short.taken
    assert long.launches[: len(short.launches)] == short.launches
    assert run(50)[0].state_dict() != first.state_dict()


@pytest.mark.parametrize("state", [{"clock": -1.0}, {"clock": "2"}, {"clock": math.inf}, {"clock": 2.0, "more": 1}])
def test_state_that_is_no_clock_is_refused(state):
    model = parse_delay("length:mean=10", prompts=4, group_size=2, seed=0, updates=30)
    with pytest.raises(ValueError, match="is a clock"):
        model.load_state_dict(state)


def test_constant_lengths_give_the_delay_of_a_fixed_one():
    model = parse_delay("length:mean=9", prompts=4, group_size=2, seed=0, updates=100)
    run = drive(model, 100, constant(300))
    assert mean(chain(*run.delays)) == pytest.approx(9, abs=0.6)


def test_a_mean_that_no_clock_can_reach_is_refused_with_the_largest():
    with pytest.raises(UsageError, match=r"at most 49\.5, reached only when version 0 .*more than 321 updates"):
        parse_delay("length:mean=160", prompts=8, group_size=8, seed=0, updates=100)


def test_a_mean_just_below_the_limit_is_refused_or_met():
    model = parse_delay("length:mean=14.45", prompts=4, group_size=2, seed=0, updates=30)
    with pytest.raises(UsageError, match="no clock gives that mean delay within 30 updates"):
        drive(model, 30, lambda batch: [[1, 1]] * 3 + [[1, 10_000]])


def test_empty_responses_cannot_calibrate():
    model = parse_delay("length:mean=5", prompts=4, group_size=2, seed=0, updates=30)
    with pytest.raises(DataError, match="all responses of the first batches are empty"):
        drive(model, 30, constant(0))


def test_launching_before_calibration_is_a_programming_error():
    model = parse_delay("length:mean=5", prompts=4, group_size=2, seed=0, updates=30)
    with pytest.raises(ValueError, match="must be calibrated"):
        model.next_launch(0)
    with pytest.raises(ValueError, match="needs 2 batches, not 1"):
        model.calibrate([[[5, 5]] * 4])
    with pytest.raises(ValueError, match="needs no calibration"):
        parse_delay("3", prompts=4, group_size=2, seed=0, updates=30).calibrate([])
