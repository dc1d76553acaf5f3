"""Worker processes on this machine. Each makes many runs; one that dies takes only the run in hand with it."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import gmc
from gmc.lab.sweep_launch import Event, refuse_options
from gmc.lab.sweep_task import Task
from gmc.lab.sweep_worker import GRACE_SECONDS
from gmc.store.files import make_directory, strict_json

IDLE_SECONDS = 0.5
DEATHS = 2
"""So often may the process of a run end on its own; a run whose process was killed once goes on in another."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    task: Task | None = None
    buffer: bytes = b""

    def give(self, task: Task) -> None:
        assert self.process.stdin is not None
        self.task = task
        with contextlib.suppress(BrokenPipeError):  # it died; its end is noticed where it is listened to
            self.process.stdin.write(strict_json(task.record()).encode() + b"\n")
            self.process.stdin.flush()

    def release(self) -> None:
        """Tell it that nothing more comes."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self, seconds: float) -> None:
        """Wait so long for its end, then kill it."""
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()


class Pool:
    """`jobs` worker processes, started when there is work. logs: folder of what they print; threads: torch's, 0 for its own
    choice."""

    def __init__(self, logs: Path, jobs: int) -> None:
        self._logs, self._jobs, self._threads = logs, jobs, 1 if jobs > 1 else 0
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._waiting: deque[Task] = deque()
        self._deaths: Counter[str] = Counter()

    def run(self, tasks: Sequence[Task], stopping: Callable[[], bool]) -> Iterator[Event]:
        """See `Launcher`."""
        stopped, deadline = False, 0.0
        self._waiting.extend(tasks)
        while self._waiting or any(worker.task for worker in self._workers):
            if not stopped and stopping():
                stopped, deadline = True, time.monotonic() + GRACE_SECONDS
                self._waiting.clear()
                for worker in self._workers:
                    worker.release()
            if stopped and time.monotonic() > deadline:
                for worker in self._workers:
                    worker.process.kill()
            self._assign()
            yield from self._listen()

    def close(self) -> None:
        """End all workers: those at work stop after the update in hand, or are killed after the grace."""
        for worker in self._workers:
            worker.release()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            worker.end(deadline - time.monotonic())
        self._workers.clear()
        self._selector.close()

    def kill(self) -> None:
        """End all workers at once. Their runs go on from their checkpoints next time."""
        for worker in self._workers:
            worker.process.kill()

    def _assign(self) -> None:
        for worker in self._workers:
            if self._waiting and worker.task is None:
                worker.give(self._waiting.popleft())
        while self._waiting and len(self._workers) < self._jobs:
            self._start().give(self._waiting.popleft())

    def _start(self) -> _Worker:
        source = str(Path(gmc.__file__).parent.parent)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        if self._threads:
            environment["OMP_NUM_THREADS"] = str(self._threads)
        make_directory(self._logs)
        log = open(self._logs / f"worker-{len(self._workers)}.log", "ab")  # noqa: SIM115 (closed with the worker)
        process = subprocess.Popen(
            [sys.executable, "-m", "gmc.lab.sweep_worker", str(self._threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the sweep alone, which stops its workers in good order
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        worker = _Worker(process, log)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        self._workers.append(worker)
        return worker

    def _listen(self) -> Iterator[Event]:
        ready = self._selector.select(IDLE_SECONDS)
        if not ready:
            yield Event("idle")
        for key, _ in ready:
            worker: _Worker = key.data
            assert worker.process.stdout is not None
            chunk = worker.process.stdout.read()
            if chunk is None:
                continue
            if not chunk:
                yield from self._buried(worker)
                continue
            *lines, worker.buffer = (worker.buffer + chunk).split(b"\n")
            for line in lines:
                yield self._event(worker, json.loads(line))

    def _event(self, worker: _Worker, message: Mapping[str, Any]) -> Event:
        assert worker.task is not None
        run = worker.task.run
        if message["kind"] != "progress":
            worker.task = None
        return Event(run=run, **message)

    def _buried(self, worker: _Worker) -> Iterator[Event]:
        """A worker has ended. If nobody told it to, its run goes on in another; the second time it has failed."""
        self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        self._workers.remove(worker)
        told = worker.process.stdin is None or worker.process.stdin.closed
        worker.release()
        worker.end(GRACE_SECONDS)
        if worker.task is None:
            return
        run, code = worker.task.run, worker.process.returncode
        self._deaths[run] += 1
        if told:
            yield Event("stopped", run)
        elif self._deaths[run] < DEATHS:
            self._waiting.append(worker.task)
            yield Event("stopped", run)
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            yield Event("failed", run, error=f"its process ended {DEATHS} times ({how}); see {worker.log.name}")


@contextlib.contextmanager
def open_pool(folder: Path, jobs: int, options: Mapping[str, str]) -> Iterator[Pool]:
    """A pool that leaves no process behind, however it is left."""
    refuse_options("local", options)
    pool = Pool(folder / "logs", jobs)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    finally:
        pool.close()
