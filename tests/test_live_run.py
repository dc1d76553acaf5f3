"""A whole live run as processes with pretended work: nothing is lost, doubled or dropped, whoever is killed and when."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_processes import used_batches

from gmc.live.claims import read_ledger
from gmc.live.heartbeats import TRAINER, read_heartbeats
from gmc.live.overview import overview
from gmc.store.files import read_jsonl
from gmc.store.policies import list_policies
from gmc.store.run_directory import ROLLOUT_NAME, RunDirectory

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "live_processes.py"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", model="embedded", seed=0)


@pytest.fixture
def start(run: RunDirectory) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def _start(role: str, *numbers: float) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, str(SCRIPT), role, str(run.path), *map(str, numbers)]
        started.append(subprocess.Popen(arguments, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.wait()


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the awaited state did not come"
        time.sleep(0.02)


def _shards(run: RunDirectory) -> dict[int, int]:
    matches = [ROLLOUT_NAME.fullmatch(path.name) for path in run.rollouts.iterdir()] if run.rollouts.is_dir() else []
    found = [(int(match[1]), int(match[2])) for match in matches if match]
    assert len(dict(found)) == len(found)
    return dict(found)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_conservation_through_kills_of_followers_and_trainer(
    run: RunDirectory, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    updates, max_ahead = 60, 4
    followers = [start("follower", max_ahead, 1.0, 0.05) for _ in range(3)]
    trainer = start("trainer", updates, 0.02, 5)
    _until(lambda: len(used_batches(run)) >= 12)
    _kill(followers[0])
    _until(lambda: len(used_batches(run)) >= 23)
    _kill(trainer)
    _until(lambda: read_ledger(run).launched - len(used_batches(run)) >= max_ahead - 1)
    followers.append(start("follower", max_ahead, 1.0, 0.05))
    trainer = start("trainer", updates, 0.02, 5)
    assert trainer.wait(90) == 0
    for follower in followers[1:]:
        assert follower.wait(30) == 0

    records = read_jsonl(run.used)
    used, shards, ledger = used_batches(run), _shards(run), read_ledger(run)
    assert [record["update"] for record in records] == list(range(updates))
    assert len(set(used)) == updates  # no batch is trained twice
    assert set(used) <= shards.keys()
    assert ledger.launched == len(shards) == updates + len(shards.keys() - set(used))  # launched = trained + waiting
    assert sorted(shards) == list(range(len(shards)))  # no number is lost with its follower
    assert len(shards) - updates <= max_ahead
    found = overview(run)
    delays = [update - shards[batch] for update, batch in enumerate(used)]
    assert min(delays) >= 0
    assert found["delays"]["mean"] == pytest.approx(sum(delays) / updates)
    assert (found["delays"]["max"], found["delays"]["last"]) == (max(delays), delays[-1])
    assert found["batches_launched"] == found["batches_trained"] + found["batches_waiting"]
    assert (found["updates"], found["ended"], found["batches_in_work"]) == (updates, True, 0)


def test_followers_pause_at_max_ahead_and_go_on(run: RunDirectory, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    for _ in range(3):
        start("follower", 2, 1.0, 0.01)
    trainer = start("trainer", 4, 0.01, 1)
    _until(lambda: len(used_batches(run)) >= 1)
    _kill(trainer)
    used = len(used_batches(run))
    _until(lambda: read_ledger(run).launched == used + 2)
    _until(
        lambda: all(
            "paused" in heartbeat.state for name, heartbeat in read_heartbeats(run.followers).items() if name != TRAINER
        )
    )
    time.sleep(0.5)
    assert read_ledger(run).launched == used + 2
    assert start("trainer", 4, 0.01, 1).wait(60) == 0


def test_followers_started_first_wait_and_stop_when_the_run_has_ended(
    run: RunDirectory, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    follower = start("follower", 2, 1.0, 0.01)
    waiting = "waiting for the first policy; no trainer is alive"
    _until(lambda: any(beat.state == waiting for beat in read_heartbeats(run.followers).values()))
    assert start("trainer", 3, 0.0, 1).wait(60) == 0
    assert follower.wait(30) == 0
    assert {beat.state for beat in read_heartbeats(run.followers).values()} == {"stopped"}
    assert run.ended.is_file()


def test_old_policies_go_and_held_ones_stay(run: RunDirectory, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    fast, slow = start("follower", 8, 30.0, 0.02), start("follower", 8, 30.0, 6.0)
    trainer = start("trainer", 26, 0.05, 1)
    assert trainer.wait(90) == 0
    kept = [version for version, _ in list_policies(run.policies)]
    held = {json.loads(path.read_text("utf-8"))["version"] for path in run.followers.glob("*.json")} - {None}
    assert {0, 10, 20, 25, 26} <= set(kept)
    assert set(kept) <= {0, 10, 20, 25, 26} | held
    assert fast.wait(30) == 0
    _kill(slow)


def test_a_second_trainer_is_refused(run: RunDirectory, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    first = start("trainer", 100, 0.0, 1)
    _until(lambda: (run.followers / f"{TRAINER}.json").exists())
    assert start("trainer", 100, 0.0, 1).wait(60) == 1
    assert first.poll() is None
