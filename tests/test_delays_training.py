"""Delay models in real training of the embedded model: no delay is no delay, and a schedule repeats a run."""

import io

import pytest
from rich.console import Console
from training_runs import metrics_of, small_settings, train_run, weights_of

from gmc.cli.simulate_run import run_delay
from gmc.cli.status import screen
from gmc.delays.schedule import schedule_of_run, write_schedule
from gmc.live.overview import overview
from gmc.simulator.request import SimulationRequest
from gmc.store.logs import read_used
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.store.shards.store import RolloutStore
from gmc.training import run

pytestmark = pytest.mark.train

UPDATES = 4


def train(path, delay):
    train_run(path, small_settings(f"delay={delay}", "estimator=gmc", f"train.updates={UPDATES}"))
    directory = RunDirectory(path, RunDirectory.open(path).record)
    return directory, RolloutStore(directory.rollouts, directory.run_id).list()


@pytest.fixture(scope="module")
def synchronous(tmp_path_factory):
    """The run without a delay."""
    path = tmp_path_factory.mktemp("synchronous") / "fixed"
    train(path, "0")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("none", ["length:0", "ramp:0", "block:1", "reuse:1"])
def test_no_delay_is_synchronous_training_bit_for_bit(none, tmp_path, synchronous):
    train(tmp_path / "none", none)
    assert weights_of(tmp_path / "none") == weights_of(synchronous)
    assert metrics_of(tmp_path / "none") == metrics_of(synchronous)


@pytest.mark.parametrize(
    ("delay", "delays"),
    [("ramp:2", [0, 0, 1, 1, 2, 2, 2]), ("block:3:1", [0, 1, 2, 3, 4, 5, 3]), ("reuse:3", [0, 1, 2, 0, 1, 2, 0])],
)
def test_a_run_in_steady_state_stopped_at_any_update_resumes_to_the_same_end(delay, delays, tmp_path):
    settings = small_settings(f"delay={delay}", "estimator=gmc", "rollout.max_tokens=16", f"train.updates={len(delays)}")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train_run(whole, settings)
    log = stopped / "metrics.jsonl"
    for done in (1, 3, 4):  # inside a block, at its end, at the start of the next
        result = run.train_run(
            stopped, settings, resume=done > 1, stopping=lambda done=done: log.exists() and len(metrics_of(stopped)) >= done
        )
        assert (result.finished, result.updates) == (False, done)
    train_run(stopped, settings, resume=True)
    assert metrics_of(stopped) == metrics_of(whole)
    assert weights_of(stopped) == weights_of(whole)
    assert (stopped / "used.jsonl").read_bytes() == (whole / "used.jsonl").read_bytes()
    assert [record["delay/mean"] for record in metrics_of(whole)] == delays


@pytest.mark.slow
def test_training_on_the_schedule_of_a_run_repeats_it_bit_for_bit(tmp_path):
    directory, stored = train(tmp_path / "clock", "lognormal:2:1")
    used = read_used(directory.used)
    rows = schedule_of_run(used, {shard.batch: shard.version for shard in stored})
    assert max(row.update - row.policy_version for row in rows) > 0
    assert [[ref.batch for ref in groups] for groups in used] != [[n] * 4 for n in range(UPDATES)]
    write_schedule(tmp_path / "schedule.parquet", rows)
    train(tmp_path / "replayed", f"schedule:{tmp_path / 'schedule.parquet'}")
    assert weights_of(tmp_path / "replayed") == weights_of(tmp_path / "clock")
    kept, again = metrics_of(tmp_path / "clock"), metrics_of(tmp_path / "replayed")
    for record in kept + again:  # a schedule names only what was used: batches still in the queue at the end do not exist in it
        record.pop("rollouts/groups_waiting")
        record.pop("response/generated_length_mean_so_far")
    assert again == kept


def test_a_run_that_reuses_its_rollouts_counts_their_uses_and_its_schedule_repeats_it(tmp_path):
    settings = ["estimator=gmc", "rollout.max_tokens=16", "train.updates=5"]
    path = tmp_path / "reuse"
    train_run(path, small_settings("delay=reuse:3", *settings))
    directory = RunDirectory.open(path)
    stored = RolloutStore(directory.rollouts, directory.run_id).list()
    assert [(shard.batch, shard.version) for shard in stored] == [(0, 0), (1, 3)]
    assert [[ref.batch for ref in groups] for groups in read_used(directory.used)] == [[n] * 4 for n in (0, 0, 0, 1, 1)]
    found = overview(directory)
    assert (found["group_uses"], found["groups_trained"], found["uses_to_come"]) == (5 * 4, 2 * 4, 1 * 4)
    assert len(stored) * 4 * 3 == found["group_uses"] + found["uses_to_come"]
    assert (found["batches_launched"], found["batches_trained"], found["batches_waiting"]) == (2, 2, 0)
    console = Console(width=100, file=io.StringIO())
    console.print(screen(found))
    assert "20 uses of 8 groups, 4 to come" in console.file.getvalue()

    schedule = tmp_path / "schedule.parquet"
    run_delay(SimulationRequest(path, delay="recorded", schedule=schedule))
    train_run(tmp_path / "replayed", small_settings(f"delay=schedule:{schedule}", *settings))
    assert weights_of(tmp_path / "replayed") == weights_of(path)
    assert metrics_of(tmp_path / "replayed") == metrics_of(path)


@pytest.mark.slow
def test_every_row_carries_its_times_on_the_clock(tmp_path):
    _, stored = train(tmp_path / "clock", "length:mean=1:group=mean")
    clocks = []
    for shard in stored:
        rows = read_shard(shard.path).rollouts
        assert {row.launched_at for row in rows} == {float(shard.batch)}
        for group in range(4):
            members = [row for row in rows if row.group == group]
            assert len({row.ready_at for row in members}) == 1
            tokens = sum(len(row.response_token_ids) for row in members) / len(members)
            clocks.append(100 * (members[0].ready_at - shard.batch) / tokens)
    assert clocks[0] > 0
    assert clocks == pytest.approx([clocks[0]] * len(clocks))


@pytest.mark.slow
def test_arms_of_any_delay_start_from_one_set_of_rollouts(tmp_path):
    base, _ = train(tmp_path / "base", "3")
    own = {shard.batch: shard.path for shard in RolloutStore(base.rollouts, base.run_id).list() if shard.version == 0}
    assert sorted(own) == [0, 1, 2, 3]
    for delay, taken in (("0", [0]), ("1", [0, 1]), ("length:mean=1", [0, 1]), ("reuse:2", [0]), ("shards", [0, 1, 2, 3])):
        path = tmp_path / delay.replace(":", "-")
        settings = small_settings(f"delay={delay}", "estimator=gmc", f"train.updates={UPDATES}")
        train_run(path, settings, rollouts_from=tmp_path / "base")
        directory = RunDirectory.open(path)
        store = RolloutStore(directory.rollouts, directory.run_id)
        shards = [shard for shard in store.list() if shard.version == 0]
        assert [shard.batch for shard in shards][: len(taken)] == taken
        for shard in shards:
            found, original = read_shard(shard.path).rollouts, read_shard(own[shard.batch]).rollouts
            assert [row.response_token_ids for row in found] == [row.response_token_ids for row in original]
