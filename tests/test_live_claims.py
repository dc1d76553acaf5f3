"""Claims: one maker and one shard a batch, whatever races, dies or wakes up late."""

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from gmc.live import exclusive
from gmc.live.claims import Claim, Claims, finish_decided, read_ledger, reopen_lost
from gmc.live.heartbeats import HeartbeatWriter, Watcher
from gmc.store.run_directory import RunDirectory, rollout_name

LEASE = 10.0


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", model="embedded", seed=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _member(run: RunDirectory, name: str, clock: Clock) -> tuple[Claims, HeartbeatWriter]:
    heartbeat = HeartbeatWriter(run.followers, name, LEASE)
    heartbeat.write("starting")
    return Claims(run, name, Watcher(run.followers, LEASE, clock)), heartbeat


def _claim(claims: Claims, limit: int = 4) -> Claim | None:
    found = claims.next_free(limit)
    return found if found is not None and claims.take(found) else None


def _write(path: Path) -> None:
    path.write_text("shard", "utf-8")


def _race(folder: Path, name: str, barrier: Barrier, rounds: int) -> None:
    run = RunDirectory.open(folder)
    heartbeat = HeartbeatWriter(run.followers, name, 60.0)
    heartbeat.write("racing")
    claims = Claims(run, name, Watcher(run.followers, 60.0))
    barrier.wait()
    won = []
    while len(won) < rounds:
        claim = claims.next_free(1000)
        assert claim is not None
        if claims.take(claim):
            won.append(claim.batch)
            assert claims.publish(claim, 0, lambda path: path.write_text(name, "utf-8") and None)
    (folder / f"{name}.txt").write_text(" ".join(map(str, won)), "utf-8")


@pytest.mark.process
def test_racing_processes_never_get_the_same_batch_and_leave_no_gap(run: RunDirectory) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    racers = [context.Process(target=_race, args=(run.path, f"racer{i}", barrier, 12)) for i in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    won = {racer: (run.path / f"racer{racer}.txt").read_text("utf-8").split() for racer in range(3)}
    assert sorted(int(batch) for batches in won.values() for batch in batches) == list(range(36))
    for racer, batches in won.items():
        for batch in batches:
            assert (run.rollouts / rollout_name(int(batch), 0)).read_text("utf-8") == f"racer{racer}"
    assert not list(run.claims.glob(".tmp-*"))


@pytest.mark.unit
def test_numbers_are_given_out_in_order_up_to_the_limit(run: RunDirectory, clock: Clock) -> None:
    first, _ = _member(run, "first", clock)
    second, _ = _member(run, "second", clock)
    assert [_claim(claims, 3) for claims in (first, second, first, second)] == [Claim(0, 1), Claim(1, 1), Claim(2, 1), None]


@pytest.mark.unit
def test_a_silent_holders_claim_goes_to_others_after_the_lease(run: RunDirectory, clock: Clock) -> None:
    dead, _ = _member(run, "dead", clock)
    living, heartbeat = _member(run, "living", clock)
    assert _claim(dead) == Claim(0, 1)
    assert _claim(living) == Claim(1, 1)
    for _ in range(3):
        clock.now += LEASE / 4
        heartbeat.write("alive")
        assert living.next_free(2) is None
    clock.now += LEASE
    assert living.next_free(2) == Claim(0, 2)


@pytest.mark.unit
def test_a_beating_holder_keeps_its_claim(run: RunDirectory, clock: Clock) -> None:
    busy, heartbeat = _member(run, "busy", clock)
    other, _ = _member(run, "other", clock)
    assert _claim(busy) == Claim(0, 1)
    for _ in range(20):
        assert other.next_free(1) is None
        clock.now += LEASE * 0.9
        heartbeat.write("still at it")


@pytest.mark.unit
def test_a_stopped_holders_claim_is_free_at_the_next_look(run: RunDirectory, clock: Clock) -> None:
    gone, heartbeat = _member(run, "gone", clock)
    other, _ = _member(run, "other", clock)
    assert _claim(gone) == Claim(0, 1)
    assert other.next_free(1) is None
    heartbeat.write("stopped")
    clock.now += LEASE / 10  # heartbeats are looked at twice a beat, not at every poll
    assert other.next_free(1) == Claim(0, 2)


@pytest.mark.unit
def test_a_holder_that_is_new_since_the_last_look_is_not_taken_for_dead(run: RunDirectory, clock: Clock) -> None:
    other, _ = _member(run, "other", clock)
    assert other.next_free(1) == Claim(0, 1)  # looks, and sees itself alone
    newcomer, _ = _member(run, "newcomer", clock)
    assert _claim(newcomer) == Claim(0, 1)
    assert other.next_free(1) is None


@pytest.mark.unit
def test_clocks_of_machines_may_differ(run: RunDirectory, clock: Clock) -> None:
    """A heartbeat's own time says nothing: only whether it goes on."""
    ahead = HeartbeatWriter(run.followers, "ahead", LEASE, clock=lambda: 1e12)
    ahead.write("alive")
    watcher = Watcher(run.followers, LEASE, clock)
    assert set(watcher.look()) == {"ahead"}
    clock.now += LEASE + 1
    assert not watcher.look()
    ahead.write("alive")
    assert set(watcher.look()) == {"ahead"}


@pytest.mark.unit
def test_a_sleeper_that_wakes_up_writes_no_second_shard(run: RunDirectory, clock: Clock) -> None:
    sleeper, _ = _member(run, "sleeper", clock)
    heir, _ = _member(run, "heir", clock)
    slept = _claim(sleeper)
    assert slept == Claim(0, 1)
    heir.next_free(1)
    clock.now += LEASE + 1
    inherited = _claim(heir)
    assert inherited == Claim(0, 2)
    assert heir.publish(inherited, 7, _write)
    assert not sleeper.publish(slept, 3, _write)
    assert [path.name for path in run.rollouts.iterdir()] == [rollout_name(0, 7)]
    assert not sleeper.take(Claim(0, 3))


@pytest.mark.unit
@pytest.mark.parametrize("rescuer", ["claims", "trainer"])
def test_a_shard_decided_but_not_moved_is_moved_by_anyone(run: RunDirectory, clock: Clock, rescuer: str) -> None:
    """A writer killed between its decision and the move to rollouts/."""
    staged = exclusive.stage(run.claims / "b000000.done")
    _write(staged / rollout_name(0, 5))
    assert exclusive.decide(run.claims / "b000000.done", staged, {"follower": "killed"})
    assert read_ledger(run).decided == {0}
    if rescuer == "claims":
        claims, _ = _member(run, "other", clock)
        assert claims.next_free(1) is None
    else:
        assert finish_decided(run, read_ledger(run)) == []
    assert (run.rollouts / rollout_name(0, 5)).read_text("utf-8") == "shard"


@pytest.mark.unit
def test_a_batch_whose_shard_was_set_aside_is_made_again(run: RunDirectory, clock: Clock) -> None:
    claims, _ = _member(run, "one", clock)
    claim = _claim(claims)
    assert claim is not None
    assert claims.publish(claim, 9, _write)
    (run.rollouts / rollout_name(0, 9)).rename(run.path / "elsewhere")
    assert claims.next_free(1) is None
    assert reopen_lost(run) == [0]
    assert claims.next_free(1) == Claim(0, 1)


@pytest.mark.unit
def test_a_failed_write_leaves_nothing(run: RunDirectory, clock: Clock) -> None:
    claims, _ = _member(run, "one", clock)
    claim = _claim(claims)
    assert claim is not None

    def fail(path: Path) -> None:
        _write(path)
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        claims.publish(claim, 0, fail)
    claims.release(claim)
    assert list(run.claims.iterdir()) == []
    assert claims.next_free(1) == Claim(0, 1)


@pytest.mark.unit
def test_batches_made_without_claims_count(run: RunDirectory, clock: Clock) -> None:
    """Shards of a plain `gmc rollout` before the run went live."""
    run.rollouts.mkdir()
    for batch in range(2):
        _write(run.rollouts / rollout_name(batch, 0))
    claims, _ = _member(run, "one", clock)
    assert _claim(claims) == Claim(2, 1)
    assert read_ledger(run).launched == 3
