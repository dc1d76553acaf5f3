"""Polls of a live run look at what is unused alone, and still miss nothing after kills, rewinds and late sleepers."""

import os
import random
from pathlib import Path

import pytest

from gmc.errors import DataError
from gmc.live import exclusive
from gmc.live.claims import Claim, Claims, reopen_lost
from gmc.live.frontier import Frontier, claim_path, decision_path
from gmc.live.heartbeats import HeartbeatWriter, Watcher
from gmc.live.pacing import launch_limit
from gmc.store.files import append_jsonl, set_aside, write_json
from gmc.store.logs import GrowingLog, UsedBatches, cut_log
from gmc.store.policies import newest_version
from gmc.store.run_directory import RunDirectory, rollout_name

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", model="embedded", seed=0)


def finished(run: RunDirectory, batch: int, *, moved: bool = True, record: object = None) -> None:
    """What `Claims.publish` leaves, without its flushes; not `moved`: its writer died before the move."""
    decision = decision_path(run, batch)
    decision.mkdir(parents=True)
    name = rollout_name(batch, 0)
    (decision / "record.json").write_text(f'{{"follower": "x", "shard": "{name}"}}' if record is None else str(record))
    run.rollouts.mkdir(exist_ok=True)
    ((run.rollouts if moved else decision) / name).touch()


def member(run: RunDirectory, name: str = "one") -> Claims:
    HeartbeatWriter(run.followers, name, 60.0).write("starting")
    return Claims(run, name, Watcher(run.followers, 60.0))


def unused(frontier: Frontier, used: UsedBatches) -> list[int]:
    return [stored.batch for stored in frontier.unused(used)]


def test_used_batches_are_those_that_were_added():
    order = [*range(200), *range(50)]
    random.Random(0).shuffle(order)
    used, wanted = UsedBatches(), set()
    for batch in order:
        used.add(batch)
        wanted.add(batch)
        assert [each in used for each in range(201)] == [each in wanted for each in range(201)]
        assert used.low == next(each for each in range(201) if each not in wanted)
    assert not used._above


def test_a_poll_lists_no_folder_that_grows_with_the_finished_work(run, monkeypatch):
    done = 300
    for batch in range(done + 2):
        finished(run, batch)
    for update in range(done):
        append_jsonl(run.used, {"update": update, "groups": [[update, 0], [update, 1]]})
    frontier, claims, log = Frontier(run), member(run), GrowingLog(run.used)

    def poll() -> tuple[list[int], Claim | None]:
        updates = log.updates()
        return unused(frontier, log.used), claims.next_free(launch_limit(updates, 4), log.used)

    assert poll() == ([done, done + 1], Claim(done + 2, 1))
    touched: list[str] = []
    for name in ("listdir", "scandir", "stat"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, *a, call=call, **k: (touched.append(str(path)), call(path, *a, **k))[1])
    assert poll() == ([done, done + 1], Claim(done + 2, 1))
    assert not {str(run.rollouts), str(run.claims)} & set(touched)
    assert len(touched) < 150


def test_what_was_decided_but_not_moved_is_moved_by_the_trainer_s_look(run):
    finished(run, 0, moved=False)
    finished(run, 1)
    assert unused(Frontier(run), UsedBatches()) == [0, 1]
    assert sorted(path.name for path in run.rollouts.iterdir()) == [rollout_name(0, 0), rollout_name(1, 0)]


def test_batches_beyond_missing_ones_are_found(run):
    frontier = Frontier(run)
    assert unused(frontier, UsedBatches()) == []
    exclusive.record_once(claim_path(run, 0, 1), {"follower": "slow"})
    finished(run, 9)  # 1 to 8 were set aside
    assert unused(frontier, UsedBatches()) == [9]
    finished(run, 90)
    assert unused(Frontier(run), UsedBatches([9])) == [90]
    run.rollouts.joinpath(rollout_name(5, 3)).touch()  # of a plain gmc rollout, before the run went live
    assert unused(Frontier(run), UsedBatches([9])) == [5, 90]


def test_a_rewound_run_s_batches_are_made_again_though_a_follower_had_seen_them_used(run):
    for batch in range(6):
        finished(run, batch)
        append_jsonl(run.used, {"update": batch, "groups": [[batch, 0]]})
    claims, log = member(run), GrowingLog(run.used)

    def next_free() -> Claim | None:
        updates = log.updates()
        return claims.next_free(launch_limit(updates, 2), log.used)

    assert next_free() == Claim(6, 1)
    cut_log(run.used, 3)
    set_aside([run.rollouts / rollout_name(batch, 0) for batch in (4, 5)])
    assert reopen_lost(run) == [4, 5]
    assert next_free() == Claim(4, 1)


def test_the_trainer_takes_a_batch_that_was_made_again(run):
    finished(run, 0)
    frontier = Frontier(run)
    assert unused(frontier, UsedBatches()) == [0]
    set_aside([run.rollouts / rollout_name(0, 0)])
    assert unused(frontier, UsedBatches()) == []
    assert reopen_lost(run) == [0]
    assert unused(frontier, UsedBatches()) == []
    claims = member(run)
    assert claims.take(Claim(0, 1))
    assert claims.publish(Claim(0, 1), 7, Path.touch)
    assert [stored.version for stored in frontier.unused(UsedBatches())] == [7]


def test_a_sleeper_that_fails_and_gives_its_claim_back_does_not_free_the_heir_s(run):
    sleeper, heir = member(run, "sleeper"), member(run, "heir")
    assert sleeper.take(Claim(0, 1))
    assert heir.take(Claim(0, 2))
    sleeper.release(Claim(0, 1))
    assert Frontier(run).newest_claim(0) == (2, "heir")
    assert sleeper.next_free(1) is None


@pytest.mark.parametrize(
    "record", ["[]", "{}", '{"shard": 3}', '{"shard": "../../x"}', '{"shard": "b000001-v000000.parquet"}', "{"]
)
def test_a_damaged_decision_is_named(run, record):
    finished(run, 0, record=record)
    with pytest.raises(
        DataError,
        match=r"claims/b000000\.done/record\.json: (not valid JSON|damaged \(.*\); remove|names no shard of batch 0; remove)",
    ):
        unused(Frontier(run), UsedBatches())


def test_the_newest_policy_is_the_highest_that_is_ready(run):
    assert newest_version(run.policies) is None
    for version, ready in ((2, True), (10, True), (11, False), (1_000_000, False)):
        (run.policies / f"v{version:06d}").mkdir(parents=True)
        if ready:
            write_json(run.policies / f"v{version:06d}" / "READY", {})
    assert newest_version(run.policies) == (10, run.policies / "v000010")
