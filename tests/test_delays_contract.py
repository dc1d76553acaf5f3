"""`check_delay`: every built-in model passes it for runs of any size, and models with a fault do not."""

import re
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.delays.base import GroupRef, ShardContents
from gmc.delays.fixed import FixedDelay
from gmc.delays.inflight import InflightDelay
from gmc.delays.length import CalibratedLengthDelay, LengthDelay
from gmc.delays.registry import delay_class, list_delays
from gmc.delays.replay import ScheduleDelay
from gmc.delays.schedule import schedule_of_run, write_schedule
from gmc.delays.shards import ShardsDelay
from gmc.testing.delays import CHECKS, check_delay, drive

pytestmark = pytest.mark.unit

SPECS = [
    *("0", "3", "100", "fixed:2", "uniform:0:9", "geometric:4", "lognormal:5:0.7"),
    *("ramp:5", "ramp:5:3", "ramp:100", "block:4", "block:4:2", "block:100", "reuse:1", "reuse:4", "reuse:100"),
    *("length:0", "length:3", "length:3:group=mean", "length:mean=3", "inflight:0", "inflight:3"),
]


@examples(60)
@given(st.sampled_from(SPECS), st.integers(0, 1000), st.integers(1, 5), st.integers(1, 3), st.integers(14, 40))
def test_every_model_that_generates_keeps_the_contract(spec, seed, prompts, group_size, updates):
    updates += 40 * ("mean=" in spec)  # within few updates no clock may give a mean, which is refused and tested elsewhere
    check_delay(delay_class(spec), spec, seed=seed, prompts=prompts, group_size=group_size, updates=updates)


@examples(30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 4))
def test_shards_keep_the_contract(sizes, prompts):
    shards = [ShardContents(batch, 0, groups) for batch, groups in enumerate(sizes)]
    updates = sum(sizes) // prompts
    if updates:
        check_delay(ShardsDelay, "shards", prompts=prompts, updates=updates, shards=shards)


def test_a_schedule_keeps_the_contract(tmp_path):
    def lengths(batch):
        return [[(batch * 31 + group * 7) % 300] * 2 for group in range(4)]

    run = drive(LengthDelay(2.0, prompts=4, updates=20), 20, lengths)
    write_schedule(tmp_path / "s.parquet", schedule_of_run(run.taken, run.versions, run.times))
    check_delay(ScheduleDelay, f"schedule:{tmp_path / 's.parquet'}", updates=20)


def test_every_built_in_model_is_checked_here():
    built_in = {plugin.name for plugin in list_delays() if plugin.distribution.startswith("gmc-rl ")}
    checked = {delay_class(spec).name for spec in SPECS} | {"shards", "schedule"}
    assert checked == built_in - {"live"}  # which is never built


class Faulty(FixedDelay):
    name = "faulty"
    examples = ("faulty:2",)


class UsesAGroupTwice(Faulty):
    def take(self, update):
        groups = super().take(update)
        return [GroupRef(0, 0), *groups[1:]]


class TakesTheFuture(Faulty):
    def take(self, update):
        return [GroupRef(ref.batch + 3, ref.group) for ref in super().take(update)]


class DropsTheOldest(Faulty):
    def take(self, update):
        return super().take(update)[:-1]


class MiscountsWaiting(Faulty):
    @property
    def waiting(self):
        return super().waiting - 1


class CountsOneFirstLaunch(Faulty):
    @property
    def first_launches(self):
        return 1


class IsReadyBeforeItStarts(LengthDelay):
    name = "faulty"
    examples = ("faulty:2",)

    def launched(self, batch, policy_version, lengths_PG):
        return [times._replace(launched_at=times.ready_at + 1) for times in super().launched(batch, policy_version, lengths_PG)]


class DrawsWithoutASeed(LengthDelay):
    name = "faulty"
    examples = ("faulty:2",)
    drawn = iter(range(10**9))

    def durations(self, batch, lengths_PG):
        return [float(next(self.drawn) * 7919 % 11) for _ in lengths_PG]


class DependsOnTheHorizon(LengthDelay):
    name = "faulty"
    examples = ("faulty:2",)

    def durations(self, batch, lengths_PG):
        return [duration * self._most_batches % 5 for duration in super().durations(batch, lengths_PG)]


class SwallowsForeignState(Faulty):
    def load_state_dict(self, state):
        pass


class ForgetsItsPlace(Faulty):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.resumed = True

    def take(self, update):
        groups = super().take(update)
        return groups[::-1] if getattr(self, "resumed", False) else groups


class AcceptsAnything(Faulty):
    @classmethod
    def parse(cls, arguments, context):
        return cls(2, prompts=context.prompts, updates=context.updates)


class LosesItsClock(CalibratedLengthDelay):
    name = "faulty"
    examples = ("faulty:2",)

    @classmethod
    def parse(cls, arguments, context):
        (mean,) = arguments.expect(1)
        return cls(4 * arguments.number(mean, "the mean"), "slowest", context)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        if state:
            raise ValueError("unknown")


class HasTwoLines(Faulty):
    summary = "one\ntwo"


class PromisesAFlightClock(Faulty):
    in_flight = True


class HidesItsFlightClock(InflightDelay):
    name = "faulty"
    examples = ("faulty:2",)
    in_flight = False


FAULTS = [
    (UsesAGroupTwice, "conservation: update 1 takes .* once more"),
    (TakesTheFuture, "conservation: update 0 takes .* not launched by then"),
    (DropsTheOldest, "conservation: update 0 takes 3 groups, not 4"),
    (MiscountsWaiting, "conservation: after update 0 it says that 7 groups wait, not 8"),
    (CountsOneFirstLaunch, "launches: first_launches is 1, and 3 batches"),
    (IsReadyBeforeItStarts, "launches: batch 0 has a group that is ready before"),
    (DrawsWithoutASeed, "determinism: two models of one seed"),
    (DependsOnTheHorizon, "more updates: with more updates planned"),
    (SwallowsForeignState, "state: load_state_dict accepts"),
    (ForgetsItsPlace, "state: after a resume at update 0 it decides otherwise"),
    (AcceptsAnything, "arguments: faulty:.* is accepted"),
    (LosesItsClock, "more updates: with more updates planned"),
    (PromisesAFlightClock, "in flight: it declares in_flight and has no flight_clock"),
    (HidesItsFlightClock, "in flight: it has a flight_clock and does not declare in_flight"),
    (HasTwoLines, "declarations: summary has more than one line"),
]


@pytest.mark.parametrize(("faulty", "finding"), FAULTS)
def test_a_model_with_a_fault_is_found_out(faulty, finding):
    with pytest.raises(AssertionError, match=rf"faulty breaks the delay contract with faulty:2(.|\n)*{finding}"):
        check_delay(faulty, "faulty:2")


def test_every_check_has_a_model_that_fails_it():
    assert {finding.partition(":")[0] for _, finding in FAULTS} == set(CHECKS)


def test_the_delay_in_the_documentation_keeps_the_contract():
    page = (Path(__file__).parent.parent / "docs" / "delays.md").read_text("utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class MyDelay" in block]
    names = {}
    exec(code, names)
    check_delay(names["MyDelay"], "my-delay:3")
