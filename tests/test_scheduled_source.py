"""The scheduled source on real shards with a maker that samples nothing: what it hands out, counts and refuses."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shard_samples import METADATA, make_rollouts, write_sample

from gmc.delays.base import GroupRef
from gmc.delays.fixed import FixedDelay
from gmc.delays.reuse import ReuseDelay
from gmc.errors import DataError, GmcError, UsageError
from gmc.rollouts.resampling import Made
from gmc.rollouts.scheduled import ScheduledSource
from gmc.store.shards.store import RolloutStore

pytestmark = pytest.mark.unit

PROMPTS = 2


@dataclass
class Maker:
    """Makes the sample rows of a batch; remembers what it was asked for."""

    def __post_init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self.reward = SimpleNamespace(metrics=dict)

    def make(self, batch: int, version: int, progress: Any = None) -> Made:
        self.made.append((batch, version))
        if progress:
            progress(PROMPTS * METADATA.group_size)
        return Made(make_rollouts(groups=PROMPTS, batch=batch, version=version, seed=batch))

    def metadata(self, version: int) -> Any:
        return METADATA


def make_source(path: Path, delay: int, *, updates: int = 5, maker: Any = None, **options: Any) -> ScheduledSource:
    store = RolloutStore(path, METADATA.run_id)
    delays = FixedDelay(delay, prompts=PROMPTS, updates=updates)
    return ScheduledSource(store, delays, maker, spec=str(delay), planned_updates=updates, **options)


def reusing_source(path: Path, maker: Any) -> ScheduledSource:
    """Each batch serves two updates."""
    store = RolloutStore(path, METADATA.run_id)
    return ScheduledSource(store, ReuseDelay(2, prompts=PROMPTS, updates=6), maker, spec="reuse:2", planned_updates=6)


def lengths_of(batch: int) -> list[int]:
    return [len(row.response_token_ids) for row in make_rollouts(groups=PROMPTS, batch=batch, version=0, seed=batch)]


def test_each_update_gets_the_batch_that_the_delay_names_from_its_version(tmp_path):
    maker, asked = Maker(), []
    source = make_source(tmp_path, 2, maker=maker)
    assert source.to_fill == 3
    for update in range(5):
        assert source.launch(update, asked.append)
        groups = source.take(update)
        assert [group[0].batch for group in groups] == [update] * PROMPTS
        assert [group[0].group for group in groups] == [0, 1]
        assert {row.policy_version for group in groups for row in group} == {max(0, update - 2)}
        launched = min(5, update + 3)
        assert source.waiting == (launched - update - 1) * PROMPTS
        generated = [length for batch in range(launched) for length in lengths_of(batch)]
        trained = [length for batch in range(update + 1) for length in lengths_of(batch)]
        assert source.metrics() == pytest.approx(
            {
                "rollouts/groups_waiting": (launched - update - 1) * PROMPTS,
                "response/generated_length_mean_so_far": sum(generated) / len(generated),
                "response/trained_length_mean_so_far": sum(trained) / len(trained),
            }
        )
    assert maker.made == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2)]
    assert asked == [PROMPTS * METADATA.group_size] * 5


def test_rows_come_back_from_disk_as_they_were_made(tmp_path):
    source = make_source(tmp_path, 0, maker=Maker())
    source.launch(0)
    rows = [row for group in source.take(0) for row in group]
    wanted = make_rollouts(groups=PROMPTS, batch=0, version=0, seed=0)
    texts = {"prompt": "", "response": ""}  # training does not read them
    assert rows == [replace(row, launched_at=None, ready_at=None, **texts) for row in wanted]


@pytest.mark.parametrize(("version", "update"), [(1, 0), (3, 0)])
def test_a_shard_of_another_version_than_the_delay_wants_is_refused(tmp_path, version, update):
    path = write_sample(tmp_path, batch=0, version=version)
    source = make_source(tmp_path, 0, maker=Maker())
    with pytest.raises(DataError, match=f"{path.name}.*wants batch 0 from policy version 0, not {version}"):
        source.launch(update)


def test_a_shard_of_an_earlier_version_is_refused_too(tmp_path):
    write_sample(tmp_path, batch=0, version=0)
    stale = write_sample(tmp_path, batch=1, version=0)
    source = make_source(tmp_path, 0, maker=Maker())
    surplus = r"1 rollout batches \(from number 1\) are more than --delay 0 has launched by update 0 \(it starts from 1\)"
    for refused in (lambda: source.check_start(0), lambda: source.launch(0)):
        with pytest.raises(UsageError, match=surplus):
            refused()
    make_source(tmp_path, 1, maker=Maker()).check_start(0)
    stale.rename(tmp_path / "b000001-v000009.parquet")
    source = make_source(tmp_path, 1, maker=Maker())
    with pytest.raises(DataError, match="wants batch 1 from policy version 0, not 9"):
        source.launch(0)


def test_surplus_rollouts_of_a_resumed_run_are_refused_before_anything_is_launched(tmp_path):
    source = make_source(tmp_path, 1, maker=Maker())
    used = []
    for update in range(2):
        source.launch(update)
        used.append([GroupRef(group[0].batch, group[0].group) for group in source.take(update)])

    def resumed() -> ScheduledSource:
        again = make_source(tmp_path, 1, maker=Maker())
        again.load_state_dict(source.state_dict(), used)
        return again

    write_sample(tmp_path, batch=3, version=2)  # the next launch's own
    resumed().check_start(2)
    write_sample(tmp_path, batch=9, version=0)
    with pytest.raises(UsageError, match=r"\(from number 9\) .* by update 2 .*Move them elsewhere"):
        resumed().check_start(2)
    resumed().check_start(5)  # all planned updates are made


def test_a_shard_of_an_earlier_version_is_refused_by_a_source_that_makes_nothing(tmp_path):
    write_sample(tmp_path, batch=0, version=0)
    stale = write_sample(tmp_path, batch=1, version=0)
    source = make_source(tmp_path, 0)
    source.launch(0)
    source.take(0)
    with pytest.raises(DataError, match=f"{stale.name}.*wants batch 1 from policy version 1, not 0"):
        source.launch(1)


def test_a_file_whose_rows_are_of_another_version_than_its_name_is_refused(tmp_path):
    write_sample(tmp_path, batch=0, version=1).rename(tmp_path / "b000000-v000000.parquet")
    source = make_source(tmp_path, 0, maker=Maker())
    source.launch(0)
    with pytest.raises(DataError, match=r"policy_version: 1, and the file.s name says 0"):
        source.take(0)


def test_a_batch_in_two_files_is_refused(tmp_path):
    write_sample(tmp_path, batch=0, version=0)
    write_sample(tmp_path, batch=0, version=1)
    with pytest.raises(DataError, match="batch 0 is there twice"):
        make_source(tmp_path, 0, maker=Maker())


def test_a_shard_with_fewer_groups_than_an_update_takes_is_refused(tmp_path):
    source = make_source(tmp_path, 0, maker=Maker())
    source.launch(0)
    delays = FixedDelay(0, prompts=PROMPTS + 1, updates=5)
    short = ScheduledSource(source._store, delays, Maker(), spec="0", planned_updates=5)
    short.launch(0)
    with pytest.raises(DataError, match="it has no group 2"):
        short.take(0)


def test_a_shard_that_vanishes_before_it_is_used_is_named(tmp_path):
    source = make_source(tmp_path, 1, maker=Maker())
    source.launch(0)
    (tmp_path / "b000000-v000000.parquet").unlink()
    with pytest.raises((DataError, FileNotFoundError), match="b000000-v000000"):
        source.take(0)


def test_nothing_is_generated_without_a_maker(tmp_path):
    source = make_source(tmp_path, 0)
    with pytest.raises(GmcError, match="generates nothing, and batch 0 does not exist"):
        source.launch(0)


def test_a_long_filling_stops_when_asked_and_goes_on_later(tmp_path):
    maker, answers = Maker(), iter([False, True, False, False, False])
    source = make_source(tmp_path, 2, maker=maker, stopping=lambda: next(answers))
    assert not source.launch(0)
    assert maker.made == [(0, 0)]
    assert source.launch(0)
    assert maker.made == [(0, 0), (1, 0), (2, 0)]


def test_a_reused_batch_is_handed_out_and_counted_at_each_use(tmp_path):
    maker = Maker()
    source = reusing_source(tmp_path, maker)
    assert source.to_fill == 1
    used = []
    for update in range(5):
        assert source.launch(update)
        groups = source.take(update)
        assert [(group[0].batch, group[0].policy_version) for group in groups] == [(update // 2, update // 2 * 2)] * PROMPTS
        used.append([GroupRef(group[0].batch, group[0].group) for group in groups])
        launched = update // 2 + 1
        generated = [length for batch in range(launched) for length in lengths_of(batch)]
        trained = [length for each in range(update + 1) for length in lengths_of(each // 2)]
        assert source.metrics() == {
            "rollouts/groups_waiting": PROMPTS * (2 * launched - update - 1),
            "response/generated_length_mean_so_far": pytest.approx(sum(generated) / len(generated)),
            "response/trained_length_mean_so_far": pytest.approx(sum(trained) / len(trained)),
        }
    assert maker.made == [(0, 0), (1, 2), (2, 4)]
    again = reusing_source(tmp_path, maker)
    again.load_state_dict(source.state_dict(), used)
    assert again.metrics() == source.metrics()
    assert again.launch(5)
    assert [group[0].batch for group in again.take(5)] == [2, 2]
    assert len(maker.made) == 3


def test_a_source_made_anew_stands_where_the_first_one_stood(tmp_path):
    first = make_source(tmp_path, 2, maker=Maker())
    used = []
    for update in range(3):
        first.launch(update)
        used.append([GroupRef(group[0].batch, group[0].group) for group in first.take(update)])
    second = make_source(tmp_path, 2, maker=Maker())
    second.load_state_dict(first.state_dict(), used)
    assert second.waiting == first.waiting
    assert second.metrics() == first.metrics()
    assert second.launch(3)
    assert [group[0].batch for group in second.take(3)] == [3, 3]


def test_a_record_of_other_groups_is_refused_on_resume(tmp_path):
    first = make_source(tmp_path, 1, maker=Maker())
    first.launch(0)
    first.take(0)
    second = make_source(tmp_path, 1, maker=Maker())
    with pytest.raises(DataError, match=r"used.jsonl, update 0: --delay 1 launches or takes other groups"):
        second.load_state_dict(first.state_dict(), [[GroupRef(1, 0), GroupRef(0, 1)]])


@pytest.mark.parametrize("replaced", [True, False])
def test_a_used_shard_that_is_gone_or_of_an_earlier_version_is_refused_on_resume(tmp_path, replaced):
    first, used = make_source(tmp_path, 0, maker=Maker()), []
    for update in range(2):
        first.launch(update)
        used.append([GroupRef(group[0].batch, group[0].group) for group in first.take(update)])
    (tmp_path / "b000001-v000001.parquet").unlink()
    if replaced:
        write_sample(tmp_path, batch=1, version=0)
    said = r"used.jsonl, update 1: --delay 0 launches" if replaced else "the shard of batch 1 is missing; restore it"
    with pytest.raises(DataError, match=said):
        make_source(tmp_path, 0, maker=Maker()).load_state_dict(first.state_dict(), used)


def test_a_batch_is_imported_where_there_is_one_and_generated_where_not(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    asked = []

    def bring(batch):
        asked.append(batch)
        if batch == 0:
            write_sample(tmp_path, batch=0, version=0)
            return RolloutStore(tmp_path, METADATA.run_id).list()[0]
        return None

    maker = Maker()
    source = make_source(tmp_path, 1, maker=maker, import_batch=bring, importable=[0, 7])
    assert source.to_fill == 1
    assert asked == []
    source.launch(0)
    assert asked == [0, 1]
    assert maker.made == [(1, 0)]
