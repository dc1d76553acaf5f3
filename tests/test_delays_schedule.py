"""Schedules: written, read, refused by name, and followed exactly."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delay_drives import varied

from gmc.delays.base import DelayContext, GroupRef, GroupTimes, ShardContents
from gmc.delays.registry import arguments_of, parse_delay
from gmc.delays.replay import ScheduleDelay
from gmc.delays.schedule import ScheduleRow, read_schedule, schedule_of_run, write_schedule
from gmc.errors import DataError, UsageError
from gmc.simulator.lengths import DrawnLengths
from gmc.simulator.simulate import simulate
from gmc.testing.delays import drive

pytestmark = pytest.mark.unit

P, UPDATES = 4, 30


def clock_run():
    return drive(parse_delay("length:2", prompts=P, group_size=2, seed=0, updates=UPDATES), UPDATES, varied())


def clock_schedule():
    run = clock_run()
    return schedule_of_run(run.taken, run.versions, run.times)


def test_a_schedule_comes_back_as_it_was_written(tmp_path):
    rows = clock_schedule()
    rows[3] = rows[3]._replace(launched_at=None, ready_at=None)
    write_schedule(tmp_path / "s.parquet", rows)
    assert read_schedule(tmp_path / "s.parquet") == (rows, P)
    spec = f"schedule:{tmp_path / 's.parquet'}"
    assert ScheduleDelay.horizon(arguments_of(spec), DelayContext(P, 2, 0, 400)) == UPDATES


def test_the_file_has_the_documented_columns(tmp_path):
    write_schedule(tmp_path / "s.parquet", clock_schedule())
    schema = pq.read_schema(tmp_path / "s.parquet")
    names = ["update", "position", "batch", "group", "policy_version", "launched_at", "ready_at"]
    assert schema.names == names
    assert [str(schema.field(name).type) for name in names] == ["int64", "int32", "int64", "int32", "int64", "double", "double"]


def test_following_a_schedule_equals_the_run_it_came_from(tmp_path):
    original = clock_run()
    write_schedule(tmp_path / "s.parquet", clock_schedule())
    model = parse_delay(f"schedule:{tmp_path / 's.parquet'}", prompts=P, group_size=2, seed=99, updates=UPDATES)
    replayed = drive(model, UPDATES, varied())
    assert replayed.taken == original.taken
    assert replayed.delays == original.delays
    used = {ref.batch for groups in original.taken for ref in groups}
    assert replayed.launches == [(batch, version) for batch, version in original.launches if batch in used]
    assert all(replayed.times[ref] == original.times[ref] for groups in original.taken for ref in groups)
    assert replayed.waiting[-1] == len(used) * P - UPDATES * P


def test_a_simulated_schedule_followed_by_a_simulation_gives_the_same_one():
    lengths = DrawnLengths(100, 0.6, prompts=P, group_size=2, seed=1)
    first = simulate(parse_delay("length:9", prompts=P, group_size=2, seed=0, updates=50), lengths, updates=50)
    again = simulate(ScheduleDelay(first.schedule, "s", prompts=P, updates=50), lengths, updates=50)
    assert again.schedule == first.schedule
    assert again.delays.summary() == first.delays.summary()


def test_fewer_updates_than_scheduled_follow_its_beginning(tmp_path):
    write_schedule(tmp_path / "s.parquet", clock_schedule())
    rows, _ = read_schedule(tmp_path / "s.parquet")
    model = ScheduleDelay(rows, tmp_path / "s.parquet", prompts=P, updates=7)
    run = drive(model, 7, varied())
    assert run.taken == clock_run().taken[:7]
    assert {batch for batch, _ in run.launches} == {ref.batch for groups in run.taken for ref in groups}


def small():
    """Two updates of two groups: batch 0 is used at both, batch 1 in part."""
    return [
        ScheduleRow(0, 0, 0, 0, 0, 0.0, 0.0),
        ScheduleRow(0, 1, 1, 1, 0, 0.0, 0.5),
        ScheduleRow(1, 0, 0, 1, 0, 0.0, 0.7),
        ScheduleRow(1, 1, 2, 0, 1, 1.0, 1.1),
    ]


BROKEN = {
    "used twice": (2, {"group": 0}, "batch 0, group 0 is used twice, at update 0 and at update 1"),
    "no such group": (3, {"group": 2}, "update 1 names batch 2, group 2, which does not exist: a batch has 2 groups"),
    "from the future": (3, {"policy_version": 2}, "update 1 cannot use batch 2, group 0 of policy version 2"),
    "two versions": (2, {"policy_version": 1}, "batch 0 is given two policy versions, 0 and 1"),
    "a gap": (3, {"position": 2}, "update 1 has no group at position 1 or has two"),
    "negative": (0, {"batch": -1}, "row 0: batch is -1, not a whole number"),
    "late start": (0, {"update": 1, "position": 2}, "update 0 has no group at position 0"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_schedule_that_contradicts_itself_is_refused_by_name(case, tmp_path):
    row, change, message = BROKEN[case]
    rows = small()
    rows[row] = rows[row]._replace(**change)
    write_schedule(tmp_path / "s.parquet", rows)
    with pytest.raises(DataError, match=message) as error:
        read_schedule(tmp_path / "s.parquet")
    assert "s.parquet" in str(error.value)


def test_an_incomplete_last_update_is_refused(tmp_path):
    write_schedule(tmp_path / "s.parquet", small()[:3])
    with pytest.raises(DataError, match="the last update has 1 of 2 groups"):
        read_schedule(tmp_path / "s.parquet")


def test_what_is_no_schedule_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such file; gmc simulate-delay writes one"):
        read_schedule(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("update,position\n")
    with pytest.raises(DataError, match=r"text\.parquet: not a Parquet file"):
        read_schedule(tmp_path / "text.parquet")
    pq.write_table(pa.table({"update": [0], "position": [0]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="not a schedule, column batch is missing"):
        read_schedule(tmp_path / "other.parquet")
    write_schedule(tmp_path / "empty.parquet", [])
    with pytest.raises(DataError, match="an empty schedule"):
        read_schedule(tmp_path / "empty.parquet")
    table = pa.table({name: [0.5] for name in ScheduleRow._fields})
    pq.write_table(table, tmp_path / "floats.parquet")
    with pytest.raises(DataError, match=r"row 0: update is 0\.5"):
        read_schedule(tmp_path / "floats.parquet")


def test_a_schedule_for_another_run_is_refused(tmp_path):
    write_schedule(tmp_path / "s.parquet", small())
    spec = f"schedule:{tmp_path / 's.parquet'}"
    with pytest.raises(UsageError, match="made for 2 prompts an update, and this run has 8; set --prompts"):
        parse_delay(spec, prompts=8, group_size=2, seed=0, updates=2)
    with pytest.raises(UsageError, match="holds 2 updates, fewer than --updates 3"):
        parse_delay(spec, prompts=2, group_size=2, seed=0, updates=3)
    shards = [ShardContents(0, 0, 2), ShardContents(2, 0, 2)]
    with pytest.raises(UsageError, match="wants batch 2 by policy version 1, but its shard on disk is by version 0"):
        parse_delay(spec, prompts=2, group_size=2, seed=0, updates=2, shards=shards)


def test_calls_out_of_order_are_refused():
    model = ScheduleDelay(small(), "s", prompts=2, updates=2)
    with pytest.raises(ValueError, match="launches come before update 0"):
        model.take(0)
    with pytest.raises(ValueError, match="batch 0 by version 0 is next"):
        model.launched(1, 0, [[1], [1]])
    with pytest.raises(ValueError, match="update 0 is next, not 1"):
        model.take(1)


def test_a_run_without_a_shard_it_used_has_no_schedule():
    with pytest.raises(DataError, match="update 1 used batch 7, and its shard is missing"):
        schedule_of_run([[GroupRef(0, 0)], [GroupRef(7, 0)]], {0: 0})


def test_a_run_without_a_clock_has_a_schedule_without_times():
    rows = schedule_of_run([[GroupRef(0, 1), GroupRef(0, 0)]], {0: 0}, {GroupRef(0, 1): GroupTimes(0.0, 2.5)})
    assert rows == [ScheduleRow(0, 0, 0, 1, 0, 0.0, 2.5), ScheduleRow(0, 1, 0, 0, 0, None, None)]
