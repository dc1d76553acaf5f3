"""`reuse:S`: one batch serves S updates, every use is counted, and none is lost."""

import pytest
from delay_drives import varied

from gmc.delays.base import GroupRef
from gmc.delays.registry import parse_delay
from gmc.delays.replay import ScheduleDelay
from gmc.delays.reuse import ReuseDelay
from gmc.delays.schedule import read_schedule, schedule_of_run, write_schedule
from gmc.errors import DataError, GmcError, UsageError
from gmc.simulator.lengths import DrawnLengths
from gmc.simulator.simulate import simulate
from gmc.testing.delays import check_delay, drive

pytestmark = pytest.mark.unit

P, UPDATES = 4, 11


def model(spec, updates=UPDATES):
    return parse_delay(spec, prompts=P, group_size=2, seed=3, updates=updates)


def batch_of(number):
    return [GroupRef(number, group) for group in range(P)]


def test_each_batch_serves_its_updates_from_the_version_that_made_it():
    run = drive(model("reuse:4"), UPDATES, varied())
    assert run.launches == [(0, 0), (1, 4), (2, 8)]
    assert run.taken == [batch_of(number) for number in (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2)]
    assert [delays[0] for delays in run.delays] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize("uses", [1, 2, 4, 7, 11, 50])
def test_launched_times_s_is_uses_plus_those_still_to_come(uses):
    run = drive(model(f"reuse:{uses}"), UPDATES, varied())
    for update in range(UPDATES):
        launched = P * (1 + update // uses)
        assert run.waiting[update] == launched * uses - P * (update + 1)


def test_it_has_the_delays_of_a_block():
    assert drive(model("reuse:3"), UPDATES, varied()).delays == drive(model("block:3"), UPDATES, varied()).delays


def test_one_use_is_synchronous_training():
    assert drive(model("reuse:1"), UPDATES, varied()) == drive(model("0"), UPDATES, varied())


def test_a_run_made_longer_goes_on_with_the_uses_still_to_come():
    short, long = drive(model("reuse:4", 6), 6, varied()), drive(model("reuse:4", 12), 12, varied())
    assert long.taken[:6] == short.taken
    assert long.taken[6:8] == [batch_of(1)] * 2


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("reuse:0", "a batch that 0 updates use is never trained on; S is at least 1;"),
        ("reuse:1.5", "the uses of a batch is 1.5, not a whole number of updates"),
        ("reuse", "it takes 1 value, not 0"),
        ("reuse:2:3", "it takes 1 value, not 2"),
    ],
)
def test_a_bad_spec_says_what_is_wrong(spec, reason):
    with pytest.raises(UsageError, match=rf"^--delay {spec}: {reason}"):
        model(spec)


def test_calls_out_of_order_are_refused():
    delays = ReuseDelay(2, prompts=P, updates=6)
    with pytest.raises(ValueError, match="batch 0 is the next"):
        delays.launched(1, 0, varied()(1))
    with pytest.raises(ValueError, match="update 0 is next and 0 batches are launched: cannot take for 0"):
        delays.take(0)
    delays.launched(0, 0, varied()(0))
    with pytest.raises(ValueError, match="update 0 is next and 1 batches are launched: cannot take for 1"):
        delays.take(1)


class Faulty(ReuseDelay):
    name = "faulty"
    examples = ("faulty:3",)


class UsesOnceTooOften(Faulty):
    def take(self, update):
        groups = super().take(update)
        return [GroupRef(0, 0), *groups[1:]] if update == 3 else groups


class ForgetsItsLastUse(Faulty):
    @property
    def waiting(self):
        return super().waiting - P * (self._taken % self.uses == 0)


class TakesAGroupTwiceAtOnce(Faulty):
    def take(self, update):
        return [GroupRef(update // self.uses, 1), *super().take(update)[1:]]


@pytest.mark.parametrize(
    ("faulty", "finding"),
    [
        (UsesOnceTooOften, r"update 3 takes GroupRef\(batch=0, group=0\) once more"),
        (ForgetsItsLastUse, "after update 2 it says that -4 groups wait, not 0"),
        (TakesAGroupTwiceAtOnce, r"update 0 takes GroupRef\(batch=0, group=1\) once more"),
    ],
)
def test_the_contract_finds_a_use_too_many_or_too_few(faulty, finding):
    with pytest.raises(AssertionError, match=rf"conservation: {finding}"):
        check_delay(faulty, "faulty:3")


def simulated(spec, updates):
    return simulate(model(spec, updates), DrawnLengths(100, 0.6, prompts=P, group_size=2, seed=1), updates=updates)


def test_a_simulation_counts_every_use():
    result = simulated("reuse:4", 10)
    summary = result.summary()
    assert (summary["uses_of_each_group"], summary["waiting_groups"]) == (4, 2 * P)
    assert summary["launched_lengths"]["responses"] == 3 * P * 2
    assert summary["trained_lengths"]["responses"] == 10 * P * 2
    assert summary["delay"]["mean"] == (0 + 1 + 2 + 3 + 0 + 1 + 2 + 3 + 0 + 1) / 10


class Losing(ReuseDelay):
    @property
    def waiting(self):
        return max(0, super().waiting - 1)


def test_a_simulation_finds_a_lost_use():
    with pytest.raises(GmcError, match="groups were lost"):
        simulate(Losing(4, prompts=P, updates=10), DrawnLengths(50, 0.5, prompts=P, group_size=2, seed=0), updates=10)


def test_its_schedule_is_written_read_and_followed(tmp_path):
    path, result = tmp_path / "s.parquet", simulated("reuse:4", 10)
    write_schedule(path, result.schedule, uses=result.uses)
    assert read_schedule(path) == (result.schedule, P)
    followed, original = drive(model(f"schedule:{path}", 10), 10, varied()), drive(model("reuse:4", 10), 10, varied())
    assert followed == original
    shorter = ScheduleDelay(result.schedule, path, prompts=P, updates=5)
    assert drive(shorter, 5, varied()).waiting == original.waiting[:5]


def test_a_schedule_that_does_not_say_so_may_use_no_group_twice(tmp_path):
    run = drive(model("reuse:3"), UPDATES, varied())
    rows = schedule_of_run(run.taken, run.versions)
    write_schedule(tmp_path / "s.parquet", rows)
    with pytest.raises(DataError, match="batch 0, group 0 is used twice, at update 0 and at update 1"):
        read_schedule(tmp_path / "s.parquet")
    write_schedule(tmp_path / "s.parquet", rows, uses=2)
    with pytest.raises(DataError, match="batch 0, group 0 is used 3 times, at update 1 and at update 2"):
        read_schedule(tmp_path / "s.parquet")
    doubled = [row._replace(group=0) if row[:2] == (0, 1) else row for row in rows]
    write_schedule(tmp_path / "s.parquet", doubled, uses=3)
    with pytest.raises(DataError, match="batch 0, group 0 is used twice, at update 0 and at update 0"):
        read_schedule(tmp_path / "s.parquet")
