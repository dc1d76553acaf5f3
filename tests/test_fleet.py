"""A fleet on a local Ray: a worker and a follower are killed and come back, nothing outlives the driver, errors end it."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gmc.live.heartbeats import TRAINER, read_heartbeats
from gmc.store.files import read_jsonl
from gmc.store.run_directory import RunDirectory

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'gmc-rl[ray]'"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes through /proc"),
]

UPDATES = 40
TRAINER_SETTINGS = [
    *("--live", "--updates", str(UPDATES), "--prompts", "2", "--group-size", "2", "--set", "rollout.max_tokens=12"),
    *("--set", "live.lease_seconds=4", "--set", "live.patience_seconds=300"),
]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def _start(command: str, *arguments: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "gmc", command, "--run", str(tmp_path / "run"), *arguments]
        started.append(
            subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        )
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the awaited state did not come"
        time.sleep(0.1)


def followers_of(run: Path) -> dict[int, int]:
    """Follower processes of a run and the process that started each, by what stands in /proc."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if b"--follow" in words and str(run).encode() in words and state != "Z":
            found[int(entry.name)] = int(parent)
    return found


def beating(run: Path) -> set[int]:
    return {beat.process for name, beat in read_heartbeats(run / "followers").items() if name != TRAINER and beat.batches}


def test_who_is_killed_comes_back_and_every_batch_is_made_once(start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trainer = start("train", *TRAINER_SETTINGS)
    fleet = start("fleet", "--followers", "2", "--cpus-each", "0.5", "--set", "live.lease_seconds=4", "--json")
    until(lambda: len(followers_of(run).keys() & beating(run)) == 2)
    orphan, worker = next(iter(followers_of(run).items()))
    os.kill(worker, signal.SIGKILL)
    until(lambda: orphan not in followers_of(run), 10)
    until(lambda: len(followers_of(run)) == 2)
    os.kill(next(iter(followers_of(run))), signal.SIGKILL)
    _, said = trainer.communicate(timeout=400)
    assert trainer.returncode == 0, said
    printed, said = fleet.communicate(timeout=120)
    assert fleet.returncode == 0, said
    summary = json.loads(printed)
    assert (summary["finished"], summary["given_up"]) == (2, {})
    assert summary["restarts"] == 1, said  # Ray itself brought back the one whose worker died
    assert "killed by signal 9" in said
    used = Counter(
        batch for line in read_jsonl(RunDirectory.open(run).used) for batch in {group[0] for group in line["groups"]}
    )
    assert (set(used.values()), sum(used.values())) == ({1}, UPDATES)
    assert not followers_of(run)


def test_no_follower_outlives_a_killed_driver_and_an_interrupted_one_ends_them(start: Start, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0).path  # whose trainer has not come yet
    for number in (signal.SIGKILL, signal.SIGINT):
        fleet = start("fleet", "--followers", "1")
        until(lambda: len(followers_of(run)) == 1)
        fleet.send_signal(number)
        _, said = fleet.communicate(timeout=90)
        until(lambda: not followers_of(run), 30)
        assert fleet.returncode == -number, said


def test_a_follower_that_cannot_start_is_given_up_in_one_line(start: Start, tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    fleet = start("fleet", "--followers", "1", "--set", "rollout.tempo=1", "--json")
    printed, said = fleet.communicate(timeout=240)
    assert fleet.returncode == 1, said
    (line,) = json.loads(printed)["given_up"].values()
    assert "rollout.tempo" in line
    assert sum("is given up" in each for each in said.splitlines()) == 1, said


def test_more_gpus_than_there_are_is_refused(start: Start) -> None:
    fleet = start("fleet", "--followers", "2", "--gpus-each", "64")
    _, said = fleet.communicate(timeout=240)
    assert fleet.returncode == 2, said
    assert "2 followers of 64 GPU each want 128" in said.splitlines()[-1]
