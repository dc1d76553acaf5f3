"""Runs of several gloo ranks that hold a part of the parameters each; as a program, one rank of them.

    python -m torch.distributed.run --nproc-per-node 2 tests/sharding_runs.py '[{"path": …, "assignments": […]}]'

The jobs of one start share its ranks, which take longer to come up than a small run takes.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
SHARDED = "train.sharding=full"


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def command(ranks: int, *program: str) -> list[str]:
    """What starts a program on so many ranks of this machine."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1"]
    return [sys.executable, *launcher, "--master-port", str(free_port()), *program]


def environment() -> dict[str, str]:
    """One thread a rank, and gloo on the loopback device."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "COLUMNS": "200"}


def job(
    path: Path, *assignments: str, resume: bool = False, rollouts: Path | None = None, batch: Path | None = None
) -> dict[str, Any]:
    """One training run, as `training_runs.train_run` takes it. batch: the file that `kept_batch` writes of its last update."""
    return {
        "path": str(path),
        "assignments": assignments,
        "resume": resume,
        "rollouts": None if rollouts is None else str(rollouts),
        "batch": None if batch is None else str(batch),
    }


def run_jobs(ranks: int, *jobs: dict[str, Any], seconds: float = 600) -> None:
    """Train each of them in turn on so many ranks, within so many seconds."""
    process = subprocess.run(
        command(ranks, str(TESTS / "sharding_runs.py"), json.dumps(jobs)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-6000:]


def threads_of_groups() -> list[str]:
    """Threads that process groups have left behind. Python goes down with whoever of them still lets go of a tensor."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if "gloo" in name]


def run_here(jobs: list[dict[str, Any]]) -> None:
    """Train each of them in turn as one of the ranks that the environment names."""
    sys.path.insert(0, str(TESTS))
    from kept_batch import kept_batch
    from training_runs import small_settings

    from gmc.ranks import joined_ranks
    from gmc.training.run import train_run
    from gmc.training.signals import stop_on_signals

    with joined_ranks() as ranks, stop_on_signals() as stop:
        for one in jobs:
            with kept_batch(Path(one["batch"]), ranks) if one["batch"] else contextlib.nullcontext():
                train_run(
                    Path(one["path"]),
                    small_settings(*one["assignments"]),
                    resume=one["resume"],
                    rollouts_from=one["rollouts"] and Path(one["rollouts"]),
                    stopping=lambda: bool(stop),
                    ranks=ranks,
                )


if __name__ == "__main__":
    run_here(json.loads(sys.argv[1]))
    assert not threads_of_groups()
