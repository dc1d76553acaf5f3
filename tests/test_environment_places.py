"""Episodes of several turns wherever batches are made: sampling processes, two ranks, live followers, chosen groups."""

import time
from statistics import fmean

import pytest
from forked_commands import ForkedCommands
from test_ranks import end, start, weights
from training_runs import assert_resumes_bit_for_bit, metrics_of, small_settings, train_run, weights_of

from gmc.live.overview import overview
from gmc.store.logs import read_used
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_metadata, read_shard
from gmc.store.shards.store import RolloutStore

RETRY = ["rollout.environment=retry", "rollout.max_tokens=64", "train.checkpoint_every=2"]
LOGGING = """
def f(completions, trainer_state, log_metric, **rest):
    log_metric('version', trainer_state.global_step)
    return [float('7' in text) for text in completions]
"""


def episodes_of(path):
    """Ids, masks, turns and rewards of every shard."""
    shards = [read_shard(stored.path) for stored in stored_in(path)]
    return [
        [(row.response_token_ids, row.response_mask, row.turns, row.reward, row.ready_at) for row in shard.rollouts]
        for shard in shards
    ]


def stored_in(path):
    run = RunDirectory.open(path)
    return RolloutStore(run.rollouts, run.run_id).list()


@pytest.mark.process
@pytest.mark.slow
def test_sampling_processes_play_what_the_trainer_plays(tmp_path):
    (tmp_path / "r.py").write_text(LOGGING)
    settings = [*RETRY, "delay=length:20", "train.updates=4", f"reward.parts={tmp_path}/r.py:f"]
    train_run(tmp_path / "here", small_settings(*settings))
    train_run(tmp_path / "away", small_settings(*settings, 'rollout.devices=["cpu"]'))
    assert any(row[1] for shard in episodes_of(tmp_path / "here") for row in shard)
    assert episodes_of(tmp_path / "away") == episodes_of(tmp_path / "here")
    assert weights_of(tmp_path / "away") == weights_of(tmp_path / "here")
    versions = [stored.version for stored in stored_in(tmp_path / "away")]
    taken = [{group.batch for group in groups} for groups in read_used(RunDirectory.open(tmp_path / "away").used)]
    assert logged_in(tmp_path / "away") == [fmean(versions[batch] for batch in batches) for batches in taken]
    assert set(logged_in(tmp_path / "here")) == {*map(float, versions)}


def logged_in(path):
    return [row["reward/log/version"] for row in metrics_of(path) if "reward/log/version" in row]


@pytest.mark.train
def test_chosen_groups_of_episodes_are_conserved_and_resume_bit_for_bit(tmp_path):
    settings = small_settings(*RETRY, "delay=2", "train.updates=5", "rollout.resample_equal=3", "rollout.group_size=2")
    whole, parts = assert_resumes_bit_for_bit(tmp_path, settings, update=3)
    assert episodes_of(parts) == episodes_of(whole)
    aside = [group for stored in stored_in(whole) for group in read_metadata(stored.path).set_aside]
    assert metrics_of(whole)[-1]["rollouts/groups_set_aside_so_far"] == len(aside) > 0
    assert any(row[1] for shard in episodes_of(whole) for row in shard)


@pytest.mark.process
@pytest.mark.slow
def test_two_ranks_play_what_one_process_plays(tmp_path):
    options = ["--environment", "retry", "--max-tokens", "64", "--updates", "3", "--set", "train.checkpoint_every=2"]
    code, _, err = end(start(tmp_path / "two", *options))
    assert code == 0, err
    rest = ["estimator=tic", "estimator.kl=0.05", "train.tokens_per_micro_batch=100"]
    train_run(tmp_path / "one", small_settings(*RETRY, "delay=2", "train.updates=3", *rest))
    ids = [[[row[:4] for row in shard] for shard in episodes_of(tmp_path / name)] for name in ("one", "two")]
    assert any(row[1] for shard in ids[0] for row in shard)
    assert ids[0] == ids[1]
    for name, tensor in weights(tmp_path / "one").items():
        assert weights(tmp_path / "two")[name].allclose(tensor, atol=1e-4, rtol=1e-3)


LIVE = ["--set", "live.lease_seconds=2", "--set", "live.patience_seconds=200"]


@pytest.fixture(scope="module")
def commands():
    warm = ForkedCommands()
    yield warm
    warm.close()


def run_live(commands, tmp_path, kill, *settings, updates=8):
    """A live run of one trainer and two followers to its end. kill: how many updates are made when the trainer and one follower
    are killed with SIGKILL and started again; None for never."""
    run, started = tmp_path / "run", []

    def begin(*arguments):
        log = tmp_path / f"{len(started)}.log"
        started.append(commands.start(*arguments, "--run", str(run), *LIVE, log=log))
        return started[-1]

    small = ["--prompts", "4", "--group-size", "4", "--learning-rate", "1e-3", "--set", "train.checkpoint_every=2"]
    trainer = begin("train", "--live", "--updates", str(updates), *small, *settings)
    followers = [begin("rollout", "--follow") for _ in range(2)]
    try:
        if kill is not None:
            wait_until(lambda: (run / "used.jsonl").is_file() and len((run / "used.jsonl").read_text().splitlines()) >= kill)
            for process in (followers[0], trainer):
                process.kill()
                process.wait()
            followers[0], trainer = begin("rollout", "--follow"), begin("train", "--resume")
        assert [process.wait(200) for process in (trainer, *followers)] == [0, 0, 0], said(tmp_path)
    finally:
        for process in started:
            process.kill()
            process.wait()
    return RunDirectory.open(run)


def wait_until(condition):
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline, "the awaited state did not come"
        time.sleep(0.05)


def said(tmp_path):
    return "\n".join(path.read_text("utf-8", "replace")[-1500:] for path in sorted(tmp_path.glob("*.log")))


def assert_conserved(run, updates):
    """Every launched group is trained on once or waits, and the rows of its shard are whole."""
    stored = RolloutStore(run.rollouts, run.run_id).list()
    used = [(group.batch, group.group) for groups in read_used(run.used) for group in groups]
    assert len(used) == len(set(used)) == 4 * updates
    batches = {one.batch for one in stored}
    missing = {*range(max(batches) + 1)} - batches
    assert len(batches) == len(stored)
    assert len(missing) <= 2, "each of two followers may be at one that the run no longer waits for when it ends"
    for batch in missing:
        claims = [path.name for path in (run.path / "claims").glob(f"b{batch:06d}.*")]
        assert claims, f"nobody claimed batch {batch}"
        assert f"b{batch:06d}.done" not in claims
    assert {batch for batch, _ in used} <= batches
    found = overview(run)
    assert found["batches_launched"] == found["batches_trained"] + found["batches_waiting"] == len(stored)
    assert (found["updates"], found["ended"], found["batches_in_work"]) == (updates, True, 0)
    return stored


@pytest.mark.process
@pytest.mark.slow
def test_live_followers_play_episodes(tmp_path, commands):
    run = run_live(commands, tmp_path, None, "--environment", "retry", "--max-tokens", "64", updates=4)
    stored = assert_conserved(run, 4)
    rows = [row for one in stored for row in read_shard(one.path).rollouts]
    assert {read_metadata(one.path).environment.partition("(")[0] for one in stored} == {"retry"}
    assert any(row.response_mask for row in rows)
    assert all(row.turns and len(row.turns) == 3 for row in rows if row.response_mask)
    first = metrics_of(run.path)[0]
    assert (first["ratio/log_rho_max"] == 0) or first["delay/mean"] > 0


@pytest.mark.process
@pytest.mark.slow
def test_in_flight_weights_through_kills_lose_and_double_nothing(tmp_path, commands):
    # Hardly any response ends by itself: an update is the shorter.
    long = ["--max-tokens", "150", "--set", "rollout.temperature=3"]
    run = run_live(commands, tmp_path, 2, "--set", "live.in_flight=true", *long, updates=6)
    stored = assert_conserved(run, 6)
    rows = [row for one in stored for row in read_shard(one.path).rollouts]
    for row in rows:
        versions = row.token_versions or [row.policy_version] * len(row.response_token_ids)
        assert versions == sorted(versions)
        assert versions[0] == row.policy_version
        assert len(versions) == len(row.response_token_ids) == len(row.trainer_logprobs)
    # Whether a swap met a response here is a matter of time; where it must, tests/test_in_flight*.py say so.
