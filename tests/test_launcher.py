"""A rank whose torchrun is gone ends: while it still imports torch, and when it would meet ranks that never come."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from killed_launcher import alive, wait_until
from sharding_runs import free_port

from gmc import ranks

LAUNCHER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "gmc", "train", "--run", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
"""
HANGS = "import pathlib, time\npathlib.Path({marker!r}).touch()\ntime.sleep(600)\n"


def place(port: int) -> dict[str, str]:
    """What torchrun tells rank 1 of two."""
    own = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {**own, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent is gone")
def test_a_rank_that_still_imports_torch_ends_with_its_launcher(tmp_path: Path) -> None:
    (tmp_path / "double").mkdir()
    marker = tmp_path / "importing"
    (tmp_path / "double" / "torch.py").write_text(HANGS.format(marker=str(marker)))
    environment = {**os.environ, **place(free_port()), "PYTHONPATH": str(tmp_path / "double")}
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path / "run")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        rank = int(launcher.stdout.readline())
        wait_until(marker.exists, seconds=60)
        assert alive(rank)
        launcher.kill()
    try:
        wait_until(lambda: not alive(rank), seconds=10)
    finally:
        if alive(rank):
            os.kill(rank, signal.SIGKILL)


@pytest.mark.unit
def test_a_rank_that_meets_nobody_says_so_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "JOIN", timedelta(seconds=1))
    for name, value in place(free_port()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "stop_with_launcher", lambda: None)  # pytest is nobody's rank
    started = time.monotonic()
    with (
        pytest.raises(ranks.RankError, match="rank 1 did not reach the other ranks at") as caught,
        ranks.joined_ranks(),
    ):
        pass
    assert time.monotonic() - started < 30
    assert "\n" not in str(caught.value)
