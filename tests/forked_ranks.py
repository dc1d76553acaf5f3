"""Ranks that are forked from a warm process, so that each start costs no imports, and that can be killed at any of their steps.

A step is an operation on the disk or with the other ranks. Each thread counts its own: the one that trains, and the writer. One
JSON request a line on stdin, one answer a line:

    {"ranks": 2, "jobs": [JOB, …], "folder": DIR, "kill": {"rank": 1, "thread": "writer", "step": 7, "all": false} or null}
    {"codes": [0, 0], "stuck": false, "left": 0, "steps": [{"main": ["fsync", …], "writer": […]}, …]}    steps up to the end
"""

import contextlib
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from sharding_runs import TESTS, environment, free_port, run_here, threads_of_groups

SECONDS = 600.0
GRACE_SECONDS = 60.0
"""As torchrun gives the others before it kills them: none should need it."""

LEFT_SECONDS = 20.0
"""How long what a killed rank had started may take to see that it is alone."""

PR_SET_CHILD_SUBREAPER = 36

DISK = ("fsync", "replace", "rename", "mkdir", "unlink")
RANKS = ("all_reduce", "all_gather_single", "all_gather_object", "broadcast_object_list")

Steps = dict[str, list[str]]
"""By thread, "main" or "writer"; a step is the operation and, where it has a path, the name that it makes."""


class Kill(NamedTuple):
    """Which rank is killed, before which step of which of its threads; all: the others in the same instant."""

    rank: int
    thread: str
    step: int
    all: bool = False


class ForkedRanks:
    """Starts groups of ranks, one after the other."""

    def __init__(self) -> None:
        command = [sys.executable, str(TESTS / "forked_ranks.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, env=environment(), **pipes)

    def run(self, ranks: int, *jobs: dict[str, Any], folder: Path, kill: Kill | None = None) -> dict[str, Any]:
        """Train each job in turn on so many ranks, of which `kill` names one and the step before which it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        folder.mkdir(exist_ok=True)
        request = {"ranks": ranks, "jobs": jobs, "folder": str(folder), "kill": kill and kill._asdict()}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert not answer["stuck"], folder
        assert not answer["left"], f"{answer['left']} processes outlived their ranks"
        return answer

    def finish(self, ranks: int, *jobs: dict[str, Any], folder: Path) -> list[Steps]:
        """The same to the end, undisturbed; the steps of every rank."""
        answer = self.run(ranks, *jobs, folder=folder)
        said = "".join((folder / f"rank-{rank}.txt").read_text()[-3000:] for rank in range(ranks) if answer["codes"][rank])
        assert answer["codes"] == [0] * ranks, said
        steps: list[Steps] = answer["steps"]
        return steps

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=300)


def count_steps(kill: Kill | None) -> Steps:
    """Note every step of this process, and kill it before one of them."""
    steps: Steps = {"main": [], "writer": []}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            thread = "writer" if threading.current_thread().name.startswith("writer") else "main"
            if kill is not None and (thread, len(steps[thread])) == (kill.thread, kill.step):
                (os.killpg if kill.all else os.kill)(os.getpgrp() if kill.all else os.getpid(), signal.SIGKILL)
            paths = [Path(arg).name for arg in args if isinstance(arg, (str, Path))]
            steps[thread].append(" ".join([name, *paths[-1:]]))
            return function(*args, **kwargs)

        return call

    for module, names in ((os, DISK), (dist, RANKS)):
        for name in names:
            setattr(module, name, counted(name, getattr(module, name)))
    return steps


def become_rank(request: dict[str, Any], rank: int, port: int) -> None:
    """Do the jobs as one rank, in a process that was just forked."""
    folder = Path(request["folder"])
    while os.getpgrp() == os.getppid():
        time.sleep(0.001)  # until the server has moved this rank into the group of its ranks
    for number, file in ((0, os.devnull), (1, folder / f"rank-{rank}.txt")):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(1, 2)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": request["ranks"], "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({name: str(value) for name, value in place.items()})
    kill = Kill(**request["kill"]) if request["kill"] else None
    steps = count_steps(kill if kill is not None and kill.rank == rank else None)
    run_here(request["jobs"])
    assert not threads_of_groups()
    (folder / f"steps-{rank}.json").write_text(json.dumps(steps))


def watch(ranks: list[int]) -> tuple[list[int], bool]:
    """Exit codes of the ranks, and whether one of them had to be killed; when one fails, the others are told to end."""
    codes: dict[int, int] = {}
    deadline, told, stuck = time.monotonic() + SECONDS, False, False
    while len(codes) < len(ranks):
        for pid in (pid for pid in ranks if pid not in codes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        left = [pid for pid in ranks if pid not in codes]
        if any(codes.values()) and not told:
            deadline, told = min(deadline, time.monotonic() + GRACE_SECONDS), True
            for pid in left:
                os.kill(pid, signal.SIGTERM)
        if time.monotonic() > deadline:
            stuck = True
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in ranks], stuck


def orphans() -> list[int]:
    """What the ranks started and left behind: this process inherits it. Ended children are taken note of."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def wait_for_orphans() -> int:
    """How many are still there after a while; they are killed."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := orphans()) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)


def main() -> None:
    import gmc.training.run
    import gmc.training.shared_saving  # noqa: F401 (so that no fork has to)

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        request, port = json.loads(line), free_port()
        folder, pids = Path(request["folder"]), list[int]()
        for old in folder.glob("steps-*.json"):
            old.unlink()
        for rank in range(request["ranks"]):
            pid = os.fork()
            if pid == 0:
                become_rank(request, rank, port)
                return  # Python goes down as in any rank
            pids.append(pid)
            os.setpgid(pid, pids[0])
        codes, stuck = watch(pids)
        left = wait_for_orphans()
        reports = [folder / f"steps-{rank}.json" for rank in range(request["ranks"])]
        steps = [json.loads(report.read_text()) if report.exists() else {} for report in reports]
        print(json.dumps({"codes": codes, "stuck": stuck, "left": left, "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
