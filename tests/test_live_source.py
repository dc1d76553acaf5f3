"""The live source on real shards: what it hands out, what it says in the heartbeat, and where it stands after a resume."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from shard_samples import METADATA, make_rollouts, write_sample

from gmc.delays.base import GroupRef
from gmc.delays.fixed import FixedDelay
from gmc.errors import DataError, GmcError, UsageError
from gmc.live.claims import Claims
from gmc.live.ending import has_ended
from gmc.live.heartbeats import TRAINER, HeartbeatWriter, Watcher, read_heartbeats
from gmc.rollouts.live import LiveSource
from gmc.rollouts.scheduled import ScheduledSource
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_metadata
from gmc.store.shards.store import RolloutStore
from gmc.store.shards.writer import write_shard

pytestmark = pytest.mark.unit

PROMPTS = 2


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    run.rollouts.mkdir(exist_ok=True)
    return run


def make_source(run, checked=None, prompts=PROMPTS):
    return LiveSource(
        run,
        RolloutStore(run.rollouts, METADATA.run_id),
        HeartbeatWriter(run.followers, TRAINER, 5.0),
        prompts=prompts,
        patience_seconds=0.2,
        keep_every=10,
        check=(checked if checked is not None else []).append,
    )


def test_batches_are_used_oldest_first_whole_and_once(run):
    for batch, version in ((0, 0), (1, 0), (2, 1)):
        write_sample(run.rollouts, batch=batch, version=version)
    checked = []
    source = make_source(run, checked)
    assert (source.waiting, source.to_fill, source.state_dict()) == (
        6,
        None,
        {"set_aside": {"groups": 0, "reward": 0.0, "tokens": 0}},
    )
    for update in range(3):
        assert source.launch(update)
        groups = source.take(update)
        assert [(group[0].batch, group[0].group, len(group)) for group in groups] == [(update, 0, 3), (update, 1, 3)]
        assert source.metrics() == {"rollouts/groups_waiting": 2.0 * (2 - update)}
        assert read_heartbeats(run.followers)[TRAINER].state == f"update {update} on batch {update}, delay {[0, 1, 1][update]}"
    assert [stored.batch for stored in checked] == [0, 1, 2]


def test_what_a_follower_logged_of_its_rewards_is_of_the_update_that_trains_on_the_batch(run):
    for batch, logged in enumerate(({"tries": 2.5}, {})):
        record = replace(METADATA, reward_log=logged)
        write_shard(run.rollouts / f"b{batch:06d}-v000000.parquet", make_rollouts(batch=batch, version=0), record)
    source = make_source(run)
    for wanted in ({"reward/log/tries": 2.5}, {}):
        source.launch(0)
        source.take(0)
        assert {name: value for name, value in source.metrics().items() if name.startswith("reward/")} == wanted


def test_a_resumed_source_leaves_used_batches_alone(run):
    for batch in range(3):
        write_sample(run.rollouts, batch=batch, version=0)
    source = make_source(run)
    source.load_state_dict({}, [[GroupRef(1, 0), GroupRef(1, 1)]])
    assert source.waiting == 4
    source.launch(1)
    assert source.take(1)[0][0].batch == 0


def test_what_cannot_be_gone_on_from_is_refused(run):
    write_sample(run.rollouts, batch=0, version=0)
    with pytest.raises(DataError, match="the shard of batch 7 is missing"):
        make_source(run).load_state_dict({}, [[GroupRef(0, 0), GroupRef(0, 1)], [GroupRef(7, 0), GroupRef(7, 1)]])
    with pytest.raises(DataError, match="batch 0 is used in part, and --live uses each whole and once"):
        make_source(run).load_state_dict({}, [[GroupRef(0, 0)]])
    with pytest.raises(DataError, match="batch 0 is used more than once, and --live uses each whole and once"):
        make_source(run).load_state_dict({}, [[GroupRef(0, 0), GroupRef(0, 1)]] * 2)
    delays = FixedDelay(1, prompts=PROMPTS, updates=5)
    scheduled = ScheduledSource(RolloutStore(run.rollouts, METADATA.run_id), delays, None, spec="1", planned_updates=5)
    with pytest.raises(DataError, match="made under another delay than --delay 1"):
        scheduled.load_state_dict(make_source(run).state_dict(), [])
    with pytest.raises(DataError, match=r"another delay than --delay 1 \(delay fixed keeps no state, and was given clock\)"):
        scheduled.load_state_dict({"delay": {"clock": 2.0}, "planned_updates": 5}, [])


def test_a_batch_that_does_not_fit_is_set_aside_and_made_again(run, caplog):
    write_sample(run.rollouts, batch=0, version=0)
    source = make_source(run, prompts=3)
    with pytest.raises(GmcError, match="no unused batch"):
        source.launch(0)
    assert "it holds 2 groups, an update of this run takes 3" in caplog.text
    assert [path.name for path in (run.rollouts / "aside-1").iterdir()] == ["b000000-v000000.parquet"]


@pytest.mark.parametrize("fault", ["foreign", "damaged"])
def test_the_shard_of_an_old_follower_does_not_stop_a_run(run, caplog, fault):
    """Its batch is decided with a shard that no update can use: it is set aside, made again, and training goes on."""
    old = Claims(run, "old", Watcher(run.followers, 5.0))
    claim = old.next_free(1)
    assert old.take(claim)
    other = {"run_id": "another-run"} if fault == "foreign" else {}
    assert old.publish(claim, 0, lambda path: write_sample(path.parent, batch=0, version=0, **other))
    shard = run.rollouts / "b000000-v000000.parquet"
    if fault == "damaged":
        shard.write_bytes(shard.read_bytes()[:-20])

    def refuse_foreign(stored):
        if read_metadata(stored.path).run_id != METADATA.run_id:
            raise UsageError(f"{stored.path}: of another run")

    source = make_source(run, SimpleNamespace(append=refuse_foreign))
    with pytest.raises(GmcError, match="no unused batch"):
        source.launch(0)
    assert f"set aside as {run.rollouts / 'aside-1' / shard.name}, batch 0 is made again: {shard}: " in caplog.text
    new = Claims(run, "new", Watcher(run.followers, 5.0))
    claim = new.next_free(1)
    assert claim is not None
    assert claim.batch == 0
    assert new.take(claim)
    assert new.publish(claim, 0, lambda path: write_sample(path.parent, batch=0, version=0))
    assert source.launch(0)
    assert len(source.take(0)) == PROMPTS


def test_followers_are_told_of_policies_and_of_the_end(run):
    source = make_source(run)
    source.published(4)
    heartbeat = read_heartbeats(run.followers)[TRAINER]
    assert (heartbeat.version, heartbeat.state) == (4, "published version 4")
    assert not has_ended(run)
    source.ended(4)
    assert has_ended(run)
