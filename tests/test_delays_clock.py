"""The virtual clock against its definition, written without queues: everything at once, by sorting."""

from statistics import mean

import pytest
from delay_drives import constant, varied
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.delays.base import GroupRef
from gmc.delays.clock import ClockDelay
from gmc.delays.registry import parse_delay
from gmc.errors import UsageError
from gmc.testing.delays import drive

pytestmark = pytest.mark.unit


class TableDelay(ClockDelay):
    """Durations from a table, repeated."""

    def __init__(self, table, prompts, updates):
        super().__init__(prompts=prompts, updates=updates)
        self.table = table

    def durations(self, batch, lengths_PG):
        row = self.table[batch % len(self.table)]
        return [float(row[group % len(row)]) for group in range(len(lengths_PG))]


def definition(delays, prompts, updates):
    """Starts, groups and versions by the words of the model: an update starts when the one before is done and P groups are
    ready, takes the P earliest, and a batch due at time b comes from the updates done by then."""
    batches = updates + int(max(max(row) for row in delays.table)) + 2
    groups = []
    for batch in range(batches):
        for group, duration in enumerate(delays.durations(batch, [[]] * prompts)):
            groups.append((batch + duration, batch, group))
    starts, taken = [], []
    for _ in range(updates):
        chosen = sorted(groups)[:prompts]
        starts.append(max([chosen[-1][0], *(starts[-1:] and [starts[-1] + 1])]))
        taken.append([GroupRef(batch, group) for _, batch, group in chosen])
        groups = [group for group in groups if group not in chosen]
    versions = {batch: sum(start + 1 <= batch for start in starts) for batch in range(batches)}
    return starts, taken, versions


tables = st.lists(st.lists(st.integers(0, 60).map(lambda value: value / 8), min_size=1, max_size=4), min_size=1, max_size=9)


@examples(150)
@given(tables, st.integers(1, 4), st.integers(1, 25))
def test_the_clock_equals_its_definition(table, prompts, updates):
    delays = TableDelay(table, prompts, updates)
    run = drive(delays, updates, constant(1, prompts))
    starts, taken, versions = definition(delays, prompts, updates)
    assert delays.starts == starts
    assert run.taken == taken
    assert run.versions == {batch: versions[batch] for batch in run.versions}
    assert delays.waits == sum(start > before for start, before in zip(starts, [0.0, *(s + 1 for s in starts)], strict=False))


SPECS = ["3", "uniform:0:9", "geometric:4", "lognormal:5:0.7", "length:3", "length:3:group=mean", "length:mean=3"]


@examples(40)
@given(st.sampled_from(SPECS), st.integers(0, 1000), st.integers(1, 5), st.integers(14, 40))
def test_every_model_conserves_orders_and_repeats_itself(spec, seed, prompts, updates):
    def run():
        model = parse_delay(spec, prompts=prompts, group_size=2, seed=seed, updates=updates)
        return drive(model, updates, varied(prompts))

    record = run()
    assert record == run()
    used = [ref for groups in record.taken for ref in groups]
    assert len(used) == len(set(used)) == prompts * updates
    assert len(record.launches) * prompts == len(used) + record.waiting[-1]
    assert [batch for batch, _ in record.launches] == list(range(len(record.launches)))
    assert all(delay >= 0 for delays in record.delays for delay in delays)
    versions = [version for _, version in record.launches]
    assert versions == sorted(versions)
    for update, groups in enumerate(record.taken):
        launched = {ref for ref in record.times if record.versions[ref.batch] <= update}
        left = launched - {ref for earlier in record.taken[: update + 1] for ref in earlier}
        order = [(record.times[ref].ready_at or 0.0, ref) for ref in groups]
        assert order == sorted(order)
        # Nobody is overtaken: whatever is left was ready no earlier than the last one taken.
        assert all((record.times[ref].ready_at or 0.0, ref) > order[-1] for ref in left)


@given(st.integers(1, 6), st.integers(2, 30))
@examples(30)
def test_no_group_starves(slow, updates):
    """A group that takes much longer than all others is taken in the first update after it is ready."""
    delays = TableDelay([[9.0 * slow, 0.5]] + [[0.5, 0.5]] * 400, 2, updates)
    run = drive(delays, updates, constant(1, 2))
    when = [update for update, groups in enumerate(run.taken) if GroupRef(0, 0) in groups]
    first = [update for update, start in enumerate(delays.starts) if start >= 9.0 * slow]
    assert when == first[:1]


def test_random_delays_do_not_depend_on_length_and_length_delays_do():
    def ready(spec, lengths):
        model = parse_delay(spec, prompts=4, group_size=2, seed=1, updates=20)
        return [times.ready_at for times in model.launched(0, 0, lengths)]

    short, long = [[10, 20]] * 4, [[10, 400]] * 4
    for spec in ("uniform:0:50", "geometric:20", "lognormal:20:0.5"):
        assert ready(spec, short) == ready(spec, long)
    assert ready("length:28", long) == [28 * 4.0] * 4
    assert ready("length:28:group=mean", long) == [28 * 2.05] * 4


@pytest.mark.parametrize(
    ("spec", "expected", "lowest", "highest"),
    [("uniform:10:30", 20, 10, 30), ("geometric:20", 20, 0, None), ("lognormal:20:0.6", 20, 0, None)],
)
def test_random_durations_have_the_mean_they_are_named_by(spec, expected, lowest, highest):
    model = parse_delay(spec, prompts=20_000, group_size=1, seed=5, updates=3)
    durations = [times.ready_at for times in model.launched(0, 0, [[1]] * 20_000)]
    assert mean(durations) == pytest.approx(expected, rel=0.03)
    assert min(durations) >= lowest
    assert highest is None or (min(durations), max(durations)) == (lowest, highest)


def test_seed_and_batch_decide_random_durations():
    def ready(seed, batch):
        model = parse_delay("uniform:0:1000", prompts=4, group_size=1, seed=seed, updates=500)
        for earlier in range(batch):
            model.launched(earlier, 0, [[1]] * 4)
        return [times.ready_at - times.launched_at for times in model.launched(batch, 0, [[1]] * 4)]

    assert ready(0, 2) == ready(0, 2)
    assert ready(0, 2) != ready(1, 2)
    assert ready(0, 2) != ready(0, 3)


def test_a_delay_far_longer_than_the_run_is_refused_with_a_cure():
    model = parse_delay("length:100000", prompts=2, group_size=1, seed=0, updates=5)
    with pytest.raises(UsageError, match=r"update 0 still waits for 2 ready groups.*shorter delay or for more updates"):
        drive(model, 5, constant(500, 2, 1))


@pytest.mark.parametrize("spec", ["length:0", "2", "ramp:2", "reuse:1"])
def test_out_of_turn_nothing_is_launched_or_taken(spec):
    model = parse_delay(spec, prompts=2, group_size=1, seed=0, updates=9)
    for update in range(3):
        while (batch := model.next_launch(update)) is not None:
            for other in (batch - 1, batch + 1):
                with pytest.raises(ValueError, match=f"batch {batch} is the next to be launched, not {other}"):
                    model.launched(other, update, [[1], [1]])
            model.launched(batch, update, [[1], [1]])
        for other in (update - 1, update + 1):
            with pytest.raises(ValueError, match=rf"update {update} is next.* cannot take for {other}"):
                model.take(other)
        assert len(model.take(update)) == 2
