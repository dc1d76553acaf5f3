"""The runs of a sweep as actors of Ray: on this machine, or on a cluster with --option address=HOST:PORT (or auto).

The sweep's folder must be seen by every node under the same path. An actor makes many runs; a sweep that stops ends them, and
their runs go on from their checkpoints next time.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from gmc.lab.sweep_launch import Event, refuse_options
from gmc.lab.sweep_task import Task
from gmc.lab.sweep_worker import run_task
from gmc.live.ray_address import require_answer

OPTIONS = ("address", "num_cpus", "num_gpus")
IDLE_SECONDS = 1.0


class _Actor:
    """Makes one run after the other in its process."""

    def __init__(self, threads: int) -> None:
        if threads:
            import torch

            torch.set_num_threads(threads)

    def make(self, task: dict[str, Any]) -> dict[str, Any]:
        """See `run_task`. What is being done is not told: only how the run ended."""
        return run_task(task, lambda phase, done, total: None, lambda: False)


class RayLauncher:
    """`jobs` actors that take the tasks in turn. options: of every actor, such as {"num_cpus": 1}."""

    def __init__(self, jobs: int, options: Mapping[str, float]) -> None:
        made = ray.remote(_Actor).options(**options)
        self._idle: deque[Any] = deque(made.remote(1 if jobs > 1 else 0) for _ in range(jobs))
        self._busy: dict[Any, tuple[Any, Task]] = {}

    def run(self, tasks: Sequence[Task], stopping: Callable[[], bool]) -> Iterator[Event]:
        """See `Launcher`."""
        waiting = deque(tasks)
        while waiting or self._busy:
            if stopping():
                yield from [Event("stopped", task.run) for _, task in self._busy.values()]
                self.kill()
                return
            while waiting and self._idle:
                actor, task = self._idle.popleft(), waiting.popleft()
                self._busy[actor.make.remote(task.record())] = (actor, task)
                yield Event("progress", task.run, "on Ray", 0, 1)
            ended, _ = ray.wait(list(self._busy), timeout=IDLE_SECONDS)
            if not ended:
                yield Event("idle")
            for reference in ended:
                yield self._ended(reference)

    def _ended(self, reference: Any) -> Event:
        actor, task = self._busy.pop(reference)
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayError as error:  # the actor or its node died
            first = str(error).strip().splitlines()[0]
            return Event("failed", task.run, error=f"Ray: {type(error).__name__}: {first}")
        self._idle.append(actor)
        return Event(run=task.run, **answer)

    def kill(self) -> None:
        """End every actor at once."""
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            ray.kill(actor)
        self._idle.clear()
        self._busy.clear()


@contextlib.contextmanager
def open_ray(folder: Path, jobs: int, options: Mapping[str, str]) -> Iterator[RayLauncher]:
    """Join the cluster at the option `address`, or start Ray here for as long as the context lives."""
    refuse_options("ray", options, OPTIONS)
    resources = {key: float(value) for key, value in options.items() if key != "address"}
    if "address" in options:
        require_answer(options["address"])
        ray.init(address=options["address"], log_to_driver=False, logging_level=logging.WARNING)
    else:
        ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    launcher = RayLauncher(jobs, {"num_cpus": 1.0, **resources})
    try:
        yield launcher
    finally:
        launcher.kill()
        ray.shutdown()
