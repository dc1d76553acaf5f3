"""Ranks of a sharded run, or what launched them, are killed (SIGKILL): all end, nothing stays, and it resumes to the same end.

A sample; `python -m tests.full sharding_kills` takes every victim at every moment, and resumes with other numbers of ranks.
"""

import subprocess

import pytest
from forked_ranks import ForkedRanks
from kill_moments import KEEPS_A_GRADIENT, NEWEST, moments, newest_checkpoint, outcome, require_dead, require_movement
from killed_launcher import alive, descendants, wait_until
from sharding_runs import SHARDED, command, environment, job

pytestmark = [pytest.mark.process, pytest.mark.slow]

SAMPLE = {"rank 1 while it writes its part of a checkpoint": ("writing", "rank 1"), "both after READY": ("ready", "both")}


@pytest.fixture
def forks():
    forks = ForkedRanks()
    yield forks
    forks.close()


def test_killed_ranks_resume_to_the_same_end(forks, tmp_path):
    whole = tmp_path / "whole"
    steps = forks.finish(2, job(whole, *KEEPS_A_GRADIENT, SHARDED), folder=tmp_path / "ranks")
    require_movement(whole)
    runs = []
    for number, (moment, victim) in enumerate(SAMPLE.values()):
        runs.append(tmp_path / f"killed-{number}")
        kill = moments(steps)[moment][victim]
        killed = forks.run(2, job(runs[-1], *KEEPS_A_GRADIENT, SHARDED), folder=tmp_path / "ranks", kill=kill)
        require_dead(killed["codes"], kill)
        assert newest_checkpoint(runs[-1]) == NEWEST[moment]
    forks.finish(2, *(job(run, *KEEPS_A_GRADIENT, SHARDED, resume=True) for run in runs), folder=tmp_path / "ranks")
    for run, said in zip(runs, SAMPLE, strict=True):
        assert outcome(run) == outcome(whole), said


STOPPING = """
import sys, time
from pathlib import Path
from gmc.ranks import joined_ranks
from gmc.training.signals import stop_on_signals
with joined_ranks() as ranks, stop_on_signals() as stop:
    Path(sys.argv[1], f"joined-{ranks.rank}").touch()
    while not ranks.any(bool(stop)):
        time.sleep(0.01)
    Path(sys.argv[1], f"stopped-{ranks.rank}").write_text(stop.signal_name or "")
"""


def test_ranks_stop_in_good_order_when_torchrun_is_killed(tmp_path):
    (tmp_path / "program.py").write_text(STOPPING)
    process = subprocess.Popen(command(2, str(tmp_path / "program.py"), str(tmp_path)), env=environment())
    wait_until(lambda: len(list(tmp_path.glob("joined-*"))) == 2 or process.poll() is not None)
    ranks = descendants(process.pid)
    assert len(ranks) == 2
    process.kill()
    process.wait()
    wait_until(lambda: not any(alive(pid) for pid in ranks), seconds=30)
    assert "SIGTERM" in [path.read_text() for path in tmp_path.glob("stopped-*")]
