"""Runs of several gloo ranks that hold a part of the parameters each; as a program, one rank of them.

    python -m torch.distributed.run --nproc-per-node 2 tests/sharding_runs.py '[{"path": …, "assignments": […]}]'

The jobs of one start share its ranks, which take longer to come up than a small run takes.
"""

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


def job(path: Path, *assignments: str, resume: bool = False, rollouts: Path | None = None) -> dict[str, Any]:
    """One training run, as `training_runs.train_run` takes it."""
    return {
        "path": str(path),
        "assignments": assignments,
        "resume": resume,
        "rollouts": None if rollouts is None else str(rollouts),
    }


def run_jobs(ranks: int, *jobs: dict[str, Any]) -> None:
    """Train each of them in turn on so many ranks."""
    process = subprocess.run(
        command(ranks, str(TESTS / "sharding_runs.py"), json.dumps(jobs)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-6000:]


def main() -> None:
    sys.path.insert(0, str(TESTS))
    from training_runs import small_settings

    from gmc.ranks import joined_ranks
    from gmc.training.run import train_run

    with joined_ranks() as ranks:
        for one in json.loads(sys.argv[1]):
            train_run(
                Path(one["path"]),
                small_settings(*one["assignments"]),
                resume=one["resume"],
                rollouts_from=one["rollouts"] and Path(one["rollouts"]),
                ranks=ranks,
            )


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # once, threads of torch aborted a rank while Python went down, its work done and on the disk
