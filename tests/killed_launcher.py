"""torchrun itself is killed (SIGKILL): its ranks have to end by themselves, and to let go of the run."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kill_moments import KEEPS_A_GRADIENT
from sharding_runs import SHARDED, TESTS, command, environment, job

SECONDS = 600.0


def kill_launcher(run: Path, updates: int | None) -> float:
    """Train (go on, where the run has begun) on two ranks, and kill their launcher after so many updates; None: never.

    Returns the seconds until the last process was gone.
    """
    resume = (run / "settings" / "train.toml").exists()
    jobs = json.dumps([job(run, *KEEPS_A_GRADIENT, SHARDED, resume=resume)])
    with (run.parent / f"{run.name}.txt").open("a") as out:
        process = subprocess.Popen(
            command(2, str(TESTS / "sharding_runs.py"), jobs), env=environment(), stdout=out, stderr=out, start_new_session=True
        )
    if updates is None:
        assert process.wait(SECONDS) == 0, Path(out.name).read_text()[-3000:]
        return 0.0
    wait_until(lambda: process.poll() is not None or updates_of(run) >= updates)
    assert process.poll() is None, Path(out.name).read_text()[-3000:]
    ranks = descendants(process.pid)
    assert len(ranks) >= 2
    process.kill()
    process.wait()
    killed = time.monotonic()
    try:
        wait_until(lambda: not any(alive(pid) for pid in ranks))
    finally:
        for pid in filter(alive, ranks):
            os.kill(pid, signal.SIGKILL)
    assert updates_of(run) < 6, "the ranks ended, and not the run"
    return time.monotonic() - killed


def wait_until(true: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        time.sleep(0.005)


def updates_of(run: Path) -> int:
    """How many it has logged; −1 before it has taken hold of its folder."""
    if not (run / "settings" / "train.toml").exists():
        return -1
    return len((run / "metrics.jsonl").read_text().splitlines()) if (run / "metrics.jsonl").exists() else 0


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
