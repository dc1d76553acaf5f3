"""Fixed delays, and every way of asking for none."""

import pytest
from delay_drives import constant, varied

from gmc.delays.base import GroupRef
from gmc.delays.fixed import FixedDelay
from gmc.delays.registry import parse_delay
from gmc.testing.delays import drive

pytestmark = pytest.mark.unit

P, UPDATES = 4, 12


def model(spec):
    return parse_delay(spec, prompts=P, group_size=2, seed=3, updates=UPDATES)


@pytest.mark.parametrize("delay", [0, 1, 5, UPDATES - 1, UPDATES, 500])
def test_update_n_takes_batch_n_whole_from_version_n_minus_d(delay):
    run = drive(model(str(delay)), UPDATES, varied())
    assert run.taken == [[GroupRef(update, group) for group in range(P)] for update in range(UPDATES)]
    assert run.launches == [(batch, max(0, batch - delay)) for batch in range(UPDATES)]
    assert run.delays == [[min(update, delay)] * P for update in range(UPDATES)]


@pytest.mark.parametrize("delay", [0, 1, 5, 500])
def test_at_most_d_batches_wait_and_the_end_leaves_none(delay):
    run = drive(model(str(delay)), UPDATES, varied())
    assert run.waiting == [P * min(delay, UPDATES - 1 - update) for update in range(UPDATES)]


@pytest.mark.parametrize("spec", ["length:0", "length:0:group=mean", "length:mean=0", "uniform:0:0", "geometric:0"])
def test_no_delay_is_synchronous_training_however_it_is_asked_for(spec):
    run, synchronous = drive(model(spec), UPDATES, varied()), drive(model("0"), UPDATES, varied())
    assert (run.launches, run.taken, run.waiting) == (synchronous.launches, synchronous.taken, synchronous.waiting)


@pytest.mark.parametrize("spec", ["uniform:5:5", "length:5"])
def test_a_clock_with_equal_durations_is_the_fixed_delay(spec):
    run, fixed = drive(model(spec), UPDATES, constant(100)), drive(model("5"), UPDATES, constant(100))
    assert run.taken == fixed.taken
    assert run.launches[: len(fixed.launches)] == fixed.launches
    assert run.delays == fixed.delays


def test_calls_out_of_order_are_refused():
    delays = FixedDelay(2, prompts=P, updates=UPDATES)
    with pytest.raises(ValueError, match="batch 0 is the next"):
        delays.launched(1, 0, varied()(1))
    with pytest.raises(ValueError, match="cannot take"):
        delays.take(0)
    delays.launched(0, 0, varied()(0))
    with pytest.raises(ValueError, match="cannot take"):
        delays.take(1)


def test_more_updates_than_planned_are_refused_by_name_of_the_batch():
    delays = FixedDelay(0, prompts=P, updates=1)
    drive(delays, 1, varied())
    assert delays.next_launch(1) is None
    with pytest.raises(ValueError, match="cannot take for 1"):
        delays.take(1)
