"""What trainer and followers do when the other side is slow, gone or starts anew."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from live_processes import publish
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.errors import GmcError
from gmc.live.claims import Claims
from gmc.live.follow import BatchCounts, Follower, Work
from gmc.live.frontier import Frontier
from gmc.live.heartbeats import HeartbeatWriter, Watcher, read_heartbeats
from gmc.live.pacing import launch_limit
from gmc.live.waiting import describe_wait, wait_for_batch
from gmc.store.files import append_jsonl, write_json
from gmc.store.logs import GrowingLog, UsedBatches
from gmc.store.policies import list_policies
from gmc.store.run_directory import RunDirectory, policy_name, rollout_name


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", model="embedded", seed=0)


def _shard(run: RunDirectory, batch: int, version: int = 0) -> None:
    run.rollouts.mkdir(exist_ok=True)
    (run.rollouts / rollout_name(batch, version)).write_text("shard", "utf-8")


class _Batch:
    def __init__(self, batch: int, version: int) -> None:
        self._version = version

    def sample(self) -> int:
        return self._version

    def finish(self, path: Path) -> BatchCounts:
        return BatchCounts(path.write_text("shard", "utf-8"), 7)


def _follow(run: RunDirectory, batches: int, load: Callable[[Path], None] = lambda folder: None) -> None:
    """Follow until `batches` batches are made; no more than those may be ahead of training."""
    follower = Follower(
        run,
        Work(load, _Batch),
        max_ahead=batches,
        lease_seconds=5.0,
        name="tester",
    )
    assert follower.follow(stopping=lambda: follower.heartbeat.current.batches == batches) == batches


def _wait(run: RunDirectory, used: set[int], patience: float, frontier: Frontier | None = None) -> int:
    stored = wait_for_batch(
        run,
        frontier or Frontier(run),
        UsedBatches(used),
        watcher=Watcher(run.followers, 5.0),
        patience_seconds=patience,
    )
    assert stored is not None
    return stored.batch


@pytest.mark.unit
def test_the_oldest_unused_batch_is_taken_past_a_missing_one(run: RunDirectory) -> None:
    for batch in (0, 2, 3):
        _shard(run, batch)
    assert _wait(run, set(), 1) == 0
    assert _wait(run, {0}, 1) == 2
    _shard(run, 1)
    assert _wait(run, {0, 2}, 1) == 1


@pytest.mark.unit
def test_impatience_names_what_is_awaited(run: RunDirectory) -> None:
    with pytest.raises(GmcError, match=r"no follower is alive; start one with gmc rollout --follow"):
        _wait(run, set(), 0.2)


@pytest.mark.unit
def test_what_is_awaited_is_logged_now_and_then(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gmc.live.waiting.FIRST_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(logging.getLogger("gmc"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="gmc"), pytest.raises(GmcError):
        _wait(run, set(), 0.3)
    assert len(caplog.messages) == 1
    assert "waiting for a batch: no follower is alive" in caplog.messages[0]


@pytest.mark.unit
def test_the_wait_names_busy_dead_and_idle_followers(run: RunDirectory) -> None:
    for name, state, batch in (("busy", "generating", 0), ("idle", "paused", None)):
        HeartbeatWriter(run.followers, name, 5.0).write(state, batch=batch)
    for name in ("busy", "dead"):
        claims = Claims(run, name, Watcher(run.followers, 5.0))
        claim = claims.next_free(2)
        assert claim is not None
        assert claims.take(claim)
    found = describe_wait(run, Watcher(run.followers, 5.0).look())
    assert found == "batch 0 by busy; batch 1 of the dead dead; idle is paused"


@pytest.mark.unit
def test_the_limit_follows_training_and_its_rewinds(run: RunDirectory) -> None:
    assert GrowingLog(run.used).updates() == 0
    for update in range(3):
        append_jsonl(run.used, {"update": update, "groups": [[update, 0]]})
    assert launch_limit(GrowingLog(run.used).updates(), 4) == 7
    run.used.write_text('{"update": 0, "groups": [[0, 0]]}\n', "utf-8")
    assert launch_limit(GrowingLog(run.used).updates(), 4) == 5


@pytest.mark.process
def test_the_newest_policy_is_loaded_once(run: RunDirectory) -> None:
    for version in (0, 3, 12):
        publish(run, version)
    (run.policies / policy_name(20)).mkdir()  # not READY
    loaded: list[str] = []
    _follow(run, 3, lambda folder: loaded.append(folder.name))
    assert loaded == [policy_name(12)]
    assert sorted(path.name for path in run.rollouts.iterdir()) == [rollout_name(batch, 12) for batch in range(3)]


@pytest.mark.process
def test_a_policy_cleaned_away_while_it_is_loaded_is_no_error(run: RunDirectory) -> None:
    publish(run, 1)

    def load(folder: Path) -> None:
        if folder.name == policy_name(1):
            publish(run, 2)
            shutil.rmtree(folder)
            raise OSError("weights are gone")

    _follow(run, 1, load)
    assert [path.name for path in run.rollouts.iterdir()] == [rollout_name(0, 2)]


@pytest.mark.process
def test_a_damaged_policy_is_an_error_that_the_heartbeat_shows(run: RunDirectory) -> None:
    publish(run, 1)

    def load(folder: Path) -> None:
        raise OSError("weights are damaged")

    with pytest.raises(OSError, match="damaged"):
        _follow(run, 1, load)
    heartbeat = read_heartbeats(run.followers)["tester"]
    assert (heartbeat.state, heartbeat.error) == ("failed", "weights are damaged")


@pytest.mark.process
def test_a_policy_of_another_run_is_refused(run: RunDirectory) -> None:
    publish(run, 0)
    write_json(list_policies(run.policies)[0][1] / "gmc.json", {**_record(run), "run_id": "other"})
    with pytest.raises(GmcError, match="the run was started anew"):
        _follow(run, 1)


def _record(run: RunDirectory) -> dict[str, object]:
    record: dict[str, object] = json.loads((list_policies(run.policies)[0][1] / "gmc.json").read_text("utf-8"))
    return record


@pytest.mark.process
def test_status_of_a_live_run(run: RunDirectory) -> None:
    publish(run, 0)
    _follow(run, 4)
    for update, batch in enumerate((0, 2)):
        append_jsonl(run.used, {"update": update, "groups": [[batch, 0], [batch, 1]]})
    HeartbeatWriter(run.followers, "sick", 5.0).write("failed", error="out of memory")
    result = CliRunner().invoke(app, ["status", "--run", str(run.path), "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    counts = {name.removeprefix("batches_"): found[name] for name in found if name.startswith("batches_")}
    assert counts == {"launched": 4, "in_work": 0, "made": 4, "trained": 2, "waiting": 2}
    assert found["delays"] == {"groups": 4, "mean": 0.5, "min": 0, "p50": 1, "p90": 1, "max": 1, "last": 1}
    assert (found["updates"], found["policy_version"], found["checkpoint"], found["trainer"]) == (2, 0, None, None)
    (follower,) = [process for process in found["followers"] if process["name"] == "tester"]
    assert (follower["batches"], follower["responses"], follower["version"], follower["alive"]) == (4, 20, 0, False)
    assert [(error["who"], error["error"]) for error in found["errors"]] == [("sick", "out of memory")]
    screen = CliRunner().invoke(app, ["status", "--run", str(run.path)]).output
    assert "4: 2 trained, 2 waiting" in screen
    assert "out of memory" in screen


@pytest.mark.unit
def test_status_works_on_an_empty_run_and_refuses_no_run(run: RunDirectory, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["status", "--run", str(run.path)]).exit_code == 0
    assert CliRunner().invoke(app, ["status", "--run", str(tmp_path / "none")]).exit_code == 2
    assert CliRunner().invoke(app, ["status", "--run", str(run.path), "--json", "--watch"]).exit_code == 2
