"""A pool of killable worker processes for the symbolic tier.

Workers are fresh interpreters (never forks of a process that holds threads or a GPU) in a session of their own, so Ctrl-C
reaches only the parent. A task may use a fixed number of CPU seconds, so a busy machine does not change a reward; a wall-clock
limit stands behind it for tasks that sleep or swap. The pool starts no process before the first task.
"""

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import gmc
from gmc.errors import GmcError
from gmc.lifeline import Lifeline

Outcome = Literal["equal", "different", "timeout", "crash"]

CPU_SECONDS = 5.0
WALL_SECONDS = 60.0
MEMORY_BYTES = 2 << 30
RECYCLE_AFTER = 1000
START_SECONDS = 180.0
STORM = 8
_CPU_SIGNALS = (-signal.SIGPROF, -signal.SIGXCPU)


@dataclass
class _Worker:
    """One process and what it is doing. task: index of the task in hand; None when idle."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    lifeline: Lifeline
    ready: bool = False
    task: int | None = None
    deadline: float = math.inf
    done: int = 0
    buffer: bytes = b""


@dataclass
class _Batch:
    """Tasks of one call and their outcomes."""

    tasks: Sequence[tuple[str, str]]
    outcomes: list[Outcome | None]
    waiting: deque[int]
    kills: Counter[int] = field(default_factory=Counter)

    @property
    def unfinished(self) -> bool:
        return any(outcome is None for outcome in self.outcomes)


class Pool:
    """Runs (gold, answer) comparisons in worker processes. Safe to call from any thread; calls take turns.

    counts: `started`, `recycled`, `cpu kills`, `wall kills`, `memory stops`, `deaths` over the pool's life.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        cpu_seconds: float = CPU_SECONDS,
        wall_seconds: float = WALL_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        recycle_after: int = RECYCLE_AFTER,
    ) -> None:
        self.size = workers or min(4, os.cpu_count() or 1)
        self.cpu_seconds = cpu_seconds
        self.wall_seconds = wall_seconds
        self.memory_bytes = memory_bytes
        self.recycle_after = recycle_after
        self.counts: Counter[str] = Counter()
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._deaths_in_a_row = 0

    def run(self, tasks: Sequence[tuple[str, str]]) -> list[Outcome]:
        """Outcomes of (gold, answer) tasks, in order. Raises `GmcError` when workers keep dying or cannot start."""
        with self._lock:
            batch = _Batch(tasks, [None] * len(tasks), deque(range(len(tasks))))
            try:
                while batch.unfinished:
                    self._assign(batch)
                    self._listen(batch)
                    self._enforce_deadlines(batch)
            except BaseException:
                # Ctrl-C or a storm: workers may hold tasks of this batch, so none is kept.
                self._end_all()
                raise
            return [outcome for outcome in batch.outcomes if outcome is not None]

    def close(self) -> None:
        """End every worker. The pool may be used again; it then starts new ones."""
        with self._lock:
            self._end_all()

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return [worker.process.pid for worker in self._workers]

    def _start(self) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        source = str(Path(gmc.__file__).parent.parent)
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        lifeline = Lifeline()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gmc.grading.worker", str(self.cpu_seconds), str(self.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            env=environment | lifeline.environment,
            pass_fds=[lifeline.reader],
            start_new_session=True,
        )
        lifeline.started()
        worker = _Worker(process, errors, lifeline, deadline=time.monotonic() + START_SECONDS)
        self._workers.append(worker)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        self.counts["started"] += 1

    def _assign(self, batch: _Batch) -> None:
        """Hand waiting tasks to idle workers; start workers while tasks wait and the pool is not full."""
        idle = [worker for worker in self._workers if worker.task is None]
        for worker in idle:
            if worker.ready and batch.waiting:
                self._hand(worker, batch, batch.waiting.popleft())
        starting = sum(not worker.ready for worker in self._workers)
        while len(self._workers) < self.size and starting < len(batch.waiting):
            self._start()
            starting += 1

    def _hand(self, worker: _Worker, batch: _Batch, index: int) -> None:
        gold, answer = batch.tasks[index]
        worker.task = index
        worker.deadline = time.monotonic() + self.wall_seconds
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(json.dumps({"gold": gold, "answer": answer}).encode() + b"\n")
        except BrokenPipeError:
            # It died while idle; its closed stdout says so in the next round.
            return

    def _listen(self, batch: _Batch) -> None:
        """Wait for the next result, death or deadline."""
        deadlines = [worker.deadline for worker in self._workers if worker.task is not None or not worker.ready]
        timeout = max(0.0, min(deadlines, default=0.0) - time.monotonic())
        for key, _ in self._selector.select(timeout):
            worker: _Worker = key.data
            data = os.read(key.fd, 65536)
            if not data:
                self._bury(worker, batch)
                continue
            *lines, worker.buffer = (worker.buffer + data).split(b"\n")
            for line in lines:
                self._receive(worker, batch, json.loads(line))

    def _receive(self, worker: _Worker, batch: _Batch, message: dict[str, object]) -> None:
        if "ready" in message:
            worker.ready, worker.deadline = True, math.inf
            return
        assert worker.task is not None
        self._deaths_in_a_row = 0
        if "limit" in message:
            self.counts["memory stops"] += 1
            batch.outcomes[worker.task] = "timeout"
        else:
            batch.outcomes[worker.task] = "equal" if message["correct"] else "different"
        worker.task, worker.deadline, worker.done = None, math.inf, worker.done + 1
        if worker.done >= self.recycle_after or "limit" in message:
            self.counts["recycled"] += 1
            self._end(worker)

    def _bury(self, worker: _Worker, batch: _Batch) -> None:
        """A worker's stdout closed: it died. Find out of what, and what becomes of its task."""
        code = worker.process.wait()
        index, was_ready = worker.task, worker.ready
        worker.errors.seek(0)
        last_words = worker.errors.read()[-2000:].decode(errors="replace").strip().rpartition("\n")[2]
        self._end(worker)
        if index is not None and code in _CPU_SIGNALS:
            self.counts["cpu kills"] += 1
            self._deaths_in_a_row = 0
            batch.outcomes[index] = "timeout"
            return
        self.counts["deaths"] += 1
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row >= STORM or (not was_ready and self._deaths_in_a_row >= 3):
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise GmcError(
                f"grading workers keep dying ({self._deaths_in_a_row} in a row, the last by {cause}"
                f"{': ' + last_words if last_words else ''}); free memory or repair the installation of math-verify, then go on"
            )
        if index is not None:
            self._retry_or(batch, index, "crash")

    def _enforce_deadlines(self, batch: _Batch) -> None:
        """Kill workers past their wall-clock limit; their task is tried once more."""
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.deadline <= now]:
            index = worker.task
            worker.process.kill()
            self.counts["wall kills"] += 1
            self._end(worker)
            if index is None:
                raise GmcError(f"a grading worker did not start within {START_SECONDS:.0f} s; the machine is overloaded")
            self._retry_or(batch, index, "timeout")

    def _retry_or(self, batch: _Batch, index: int, outcome: Outcome) -> None:
        batch.kills[index] += 1
        if batch.kills[index] < 2:
            batch.waiting.appendleft(index)
        else:
            batch.outcomes[index] = outcome

    def _end(self, worker: _Worker) -> None:
        """Kill, reap and forget one worker."""
        self._workers.remove(worker)
        assert worker.process.stdin is not None
        assert worker.process.stdout is not None
        self._selector.unregister(worker.process.stdout)
        worker.process.kill()
        worker.process.stdin.close()
        worker.process.stdout.close()
        worker.process.wait()
        worker.errors.close()
        worker.lifeline.close()

    def _end_all(self) -> None:
        for worker in list(self._workers):
            self._end(worker)
