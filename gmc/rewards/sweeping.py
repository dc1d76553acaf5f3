"""Ending what somebody's code has started, in whatever session or group of processes it hides. Linux alone; elsewhere nothing.

A worker adopts what loses its parent below it, and its environment carries a mark that what it starts inherits. So a process is
found as a descendant of the worker, also where it was given an environment of its own, and by the mark, also where the worker
has ended before.
"""

import contextlib
import ctypes
import os
import secrets
import signal
import sys
import time
from pathlib import Path

VARIABLE = "GMC_WORKER"
"""Environment variable: the mark."""

ROUNDS = 100
"""So often what is found is killed and looked for again: while one is killed it may start another."""

PAUSE_SECONDS = 0.01
_PR_SET_CHILD_SUBREAPER = 36


def new_mark() -> str:
    """A mark that no other worker has."""
    return secrets.token_hex(16)


def adopt_orphans() -> None:
    """Called by a worker first: what loses its parent below it becomes its child, and is none of nobody."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_started(worker: int | None, mark: str) -> None:
    """Kill all that a worker has started and that still lives, and not the worker itself.

    worker: its id, None once it has ended and been waited for: its id may by then be another's.
    """
    if not sys.platform.startswith("linux"):
        return
    for _ in range(ROUNDS):
        found = _started(worker, mark)
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(PAUSE_SECONDS)


def _started(worker: int | None, mark: str) -> set[int]:
    wanted = os.fsencode(f"{VARIABLE}={mark}")
    parents: dict[int, int] = {}
    found = set()
    for process in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            state, parent = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[:2]
            if state in b"ZX":
                continue
            parents[process] = int(parent)
            if wanted in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                found.add(process)
    below = set() if worker is None else {worker}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return (found | below) - {worker}
