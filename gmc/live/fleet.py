"""A fleet: followers that Ray places on the machines of a cluster, or on this one, and that are started again when they die.

Ray decides where a follower runs and gives it its GPUs; what followers agree on stays in the run's folder. A follower whose
worker, node or own process dies is started again, and the batch it was making goes to another one as in any live run.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray as untyped_ray

from gmc.errors import GmcError, UsageError
from gmc.live.ending import has_ended
from gmc.live.fleet_follower import GRACE_SECONDS, Ended, follow_once
from gmc.live.ray_address import require_answer
from gmc.store.run_directory import RUN_FILE, RunDirectory

log = logging.getLogger(__name__)
ray: Any = untyped_ray  # its types know neither tasks with arguments nor what a cluster has

WAIT_SECONDS = 0.5
BACK_OFF_SECONDS = 5.0
ERRORS, WITHIN_SECONDS = 3, 3600.0
"""A follower that ends by its own error this often within this time is given up."""


@dataclass(frozen=True)
class Fleet:
    """What is asked for. arguments: further ones of each `gmc rollout --follow`; gpus_each, cpus_each: what Ray sets aside for
    a follower; address: a cluster's, or "auto"; None starts Ray on this machine for as long as the fleet lives."""

    run: Path
    followers: int
    arguments: Sequence[str] = ()
    gpus_each: float = 0.0
    cpus_each: float = 1.0
    address: str | None = None


@dataclass
class FleetSummary:
    """How a fleet ended. finished: followers that saw the run's end; restarts: followers started again; given_up: the last line
    of each that kept failing, by number."""

    finished: int = 0
    restarts: int = 0
    given_up: dict[int, str] = field(default_factory=dict)


def run_fleet(fleet: Fleet, stopping: Callable[[], bool] = lambda: False) -> FleetSummary:
    """Keep the followers alive until the run has ended, all have been given up, or `stopping` says so.

    Raises `UsageError` when this machine lacks the GPUs asked for, `GmcError` when the cluster cannot be joined.
    """
    fleet = Fleet(**{**vars(fleet), "run": fleet.run.resolve()})
    with _joined(fleet):
        _wait_for_run(fleet.run, stopping)
        return _Keeper(fleet).keep(stopping)


def _wait_for_run(run: Path, stopping: Callable[[], bool]) -> None:
    """Until the trainer has made its folder: nobody else may put anything there."""
    if not (run / RUN_FILE).is_file():
        log.info("waiting for gmc train --live --run %s", run)
    while not (run / RUN_FILE).is_file() and not stopping():
        time.sleep(WAIT_SECONDS)


@contextmanager
def _joined(fleet: Fleet) -> Iterator[None]:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if fleet.address is not None:
        require_answer(fleet.address)
    try:
        if fleet.address is not None:
            ray.init(address=fleet.address, **quiet)
        else:
            ray.init(num_cpus=max(1, round(fleet.followers * fleet.cpus_each)), include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise GmcError(f"cannot join Ray at {fleet.address or 'this machine'}: {first}") from error
    try:
        _check_room(fleet)
        yield
    finally:
        ray.shutdown()


def _check_room(fleet: Fleet) -> None:
    has = ray.cluster_resources()
    for kind, each in (("GPU", fleet.gpus_each), ("CPU", fleet.cpus_each)):
        wanted, there = each * fleet.followers, has.get(kind, 0.0)
        if wanted <= there:
            continue
        text = f"{fleet.followers} followers of {each:g} {kind} each want {wanted:g}, and there are {there:g}"
        if fleet.address is None:
            raise UsageError(f"{text} on this machine; ask for fewer, or name a cluster with --address")
        log.warning("%s on the cluster now; the others start when there is room", text)


class _Keeper:
    """Follows each follower's fate. Tasks are Ray's: it starts one again by itself when its worker or node is lost."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._task = ray.remote(follow_once).options(
            num_gpus=fleet.gpus_each, num_cpus=fleet.cpus_each, max_retries=-1, name="gmc follower"
        )
        self._working: dict[Any, int] = {}
        self._due: dict[int, float] = dict.fromkeys(range(fleet.followers), 0.0)
        self._errors: dict[int, list[float]] = {number: [] for number in range(fleet.followers)}
        self.summary = FleetSummary()

    def keep(self, stopping: Callable[[], bool]) -> FleetSummary:
        """See `run_fleet`."""
        try:
            while (self._working or self._due) and not stopping():
                self._start_due()
                if not self._working:
                    time.sleep(WAIT_SECONDS)
                    continue
                for reference in ray.wait(list(self._working), timeout=WAIT_SECONDS)[0]:
                    self._judge(self._working.pop(reference), ray.get(reference))
        finally:
            self._stop()
        return self.summary

    def _start_due(self) -> None:
        for number in [number for number, when in self._due.items() if when <= time.monotonic()]:
            del self._due[number]
            run = self._fleet.run
            reference = self._task.remote(run, [*self._fleet.arguments], run / "logs" / f"fleet-{number}.log")
            self._working[reference] = number

    def _judge(self, number: int, ended: Ended) -> None:
        if ended.code == 0 and has_ended(RunDirectory.open(self._fleet.run)):
            self.summary.finished += 1
            log.info("follower %d on %s: %s", number, ended.host, ended.said)
            return
        now, own_error = time.monotonic(), ended.code > 0
        recent = [when for when in self._errors[number] if now - when < WITHIN_SECONDS] + [now] * own_error
        self._errors[number] = recent
        if ended.code == UsageError.exit_code or len(recent) >= ERRORS:
            self.summary.given_up[number] = ended.said
            log.warning("follower %d on %s is given up: %s", number, ended.host, ended.said)
            return
        how = f"killed by signal {-ended.code}" if ended.code < 0 else ended.said
        log.warning("follower %d on %s ended and is started again: %s", number, ended.host, how)
        self.summary.restarts += 1
        self._due[number] = now + BACK_OFF_SECONDS * own_error

    def _stop(self) -> None:
        """Cancel what still works, which interrupts it, and wait until it has stopped in good order."""
        for reference in self._working:
            ray.cancel(reference, force=False)
        if self._working:
            ray.wait(list(self._working), num_returns=len(self._working), timeout=GRACE_SECONDS + 10)
