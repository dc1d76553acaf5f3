"""The runs of a sweep as jobs of Slurm, through submitit; --option cluster=local runs them here, to try it out.

A job makes one run. The sweep's folder must be seen by every node under the same path. Options are submitit's own, such as
timeout_min=120 or slurm_partition=gpu. A job that Slurm ends is recorded as failed; --retry lets its run go on.
"""

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit

import gmc
from gmc.errors import UsageError
from gmc.lab.sweep_launch import Event
from gmc.lab.sweep_task import Task
from gmc.lab.sweep_worker import run_task

POLL_SECONDS = 1.0
TIMEOUT_MINUTES = 24 * 60


def make_run(task: dict[str, Any]) -> dict[str, Any]:
    """What a job does: see `run_task`."""
    return run_task(task, lambda phase, done, total: None, lambda: False)


class SlurmLauncher:
    """Keeps at most `jobs` jobs of an executor under way."""

    def __init__(self, executor: Any, jobs: int) -> None:
        self._executor, self._jobs = executor, jobs
        self._under_way: list[tuple[Any, Task]] = []

    def run(self, tasks: Sequence[Task], stopping: Callable[[], bool]) -> Iterator[Event]:
        """See `Launcher`."""
        waiting = deque(tasks)
        while waiting or self._under_way:
            if stopping():
                yield from [Event("stopped", task.run) for _, task in self._under_way]
                self.cancel()
                return
            while waiting and len(self._under_way) < self._jobs:
                task = waiting.popleft()
                job = self._executor.submit(make_run, task.record())
                self._under_way.append((job, task))
                yield Event("progress", task.run, f"job {job.job_id}", 0, 1)
            ended = [(job, task) for job, task in self._under_way if job.done()]
            self._under_way = [each for each in self._under_way if each not in ended]
            for job, task in ended:
                yield _ended(job, task)
            if not ended:
                yield Event("idle")
                time.sleep(POLL_SECONDS)

    def cancel(self) -> None:
        """End every job under way, and wait for the end."""
        for job, _ in self._under_way:
            job.cancel(check=False)
        for job, _ in self._under_way:
            while not job.done():
                time.sleep(POLL_SECONDS)
        self._under_way.clear()


def _ended(job: Any, task: Task) -> Event:
    try:
        answer = job.result()
    except Exception as error:  # submitit raises its own error classes, and what unpickling raises, for a job that died
        first = str(error).strip().splitlines()[0]
        return Event("failed", task.run, error=f"job {job.job_id}: {type(error).__name__}: {first}; see {job.paths.stderr}")
    return Event(run=task.run, **answer)


@contextlib.contextmanager
def open_slurm(folder: Path, jobs: int, options: Mapping[str, str]) -> Iterator[SlurmLauncher]:
    """An executor whose jobs end with the context."""
    given = {key: int(value) if value.isdecimal() else value for key, value in options.items() if key != "cluster"}
    logs, cluster = folder / "logs" / "%j", options.get("cluster")
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster, slurm_python=sys.executable)
        executor.update_parameters(**{"timeout_min": TIMEOUT_MINUTES, "cpus_per_task": 1, "name": "gmc", **given})
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"--launcher slurm: {str(error).splitlines()[0]} (try --option cluster=local)") from error
    launcher = SlurmLauncher(executor, jobs)
    with _source_on_path():
        try:
            yield launcher
        finally:
            launcher.cancel()


@contextlib.contextmanager
def _source_on_path() -> Iterator[None]:
    """Jobs inherit the environment: let them find the gmc that submits them."""
    before = os.environ.get("PYTHONPATH")
    source = str(Path(gmc.__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [before])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
