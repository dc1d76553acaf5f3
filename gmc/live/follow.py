"""A follower: loads the newest policy, makes the batches that are still to be made with it, and stops when the run ends."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from gmc.errors import DataError, GmcError
from gmc.live.claims import Claim, Claims
from gmc.live.ending import has_ended
from gmc.live.finishing import Finisher
from gmc.live.heartbeats import TRAINER, Heartbeat, HeartbeatWriter, Watcher, new_name
from gmc.live.pacing import launch_limit
from gmc.store.files import is_ready
from gmc.store.logs import GrowingLog
from gmc.store.policies import newest_version, read_policy_info
from gmc.store.run_directory import RunDirectory

log = logging.getLogger(__name__)

Progress = Callable[[Heartbeat], None]
"""Is told what a follower says of itself: its state in words, the version it holds, what it made."""

POLL_SECONDS, SLOWEST_POLL_SECONDS = 0.2, 2.0
"""Between looks while there is nothing to do; the wait grows by a half each time, so that many idle followers cost little."""


@dataclass(frozen=True)
class BatchCounts:
    """What one batch came to."""

    responses: int
    tokens: int


class Batch(Protocol):
    """A launch batch on its way."""

    def sample(self) -> int:
        """Wait until it is sampled; then another policy may be loaded. Called in the order of beginning. Returns the version
        that is held now: a newer one where the batch went on under it."""
        ...

    def finish(self, path: Path) -> BatchCounts:
        """Grade what was sampled and write the shard at the path. Called from another thread, while later ones are sampled."""
        ...


@dataclass(frozen=True)
class Work:
    """What a follower can do.

    load_policy: take the policy in this folder for all batches that begin from now on; none is begun and not sampled then.
    begin: launch batch `batch` with the policy of version `version`, which was loaded last. at_once: batches that the engine
    samples at once; the later ones only move on while the first is waited for, so it is 1 where they would not.
    """

    load_policy: Callable[[Path], None]
    begin: Callable[[int, int], Batch]
    at_once: int = 1


@dataclass(frozen=True)
class _Begun:
    claim: Claim
    version: int
    batch: Batch


def require_own(folder: Path, run_id: str) -> None:
    """Raise `GmcError` for a policy of another run than the one that is followed."""
    found = read_policy_info(folder).run_id
    if found != run_id:
        raise GmcError(
            f"{folder}: a policy of run {found}, this follower follows {run_id}; the run was started anew. "
            "Start the follower again."
        )


class Follower:
    """One process that follows a live run. `follow` does the work; `heartbeat` tells others about it.

    While a batch is graded and written, the next one is claimed and sampled. Every batch is sampled by one policy, the newest
    when it began, and batches are decided in the order in which they began.
    """

    def __init__(self, run: RunDirectory, work: Work, *, max_ahead: int, lease_seconds: float, name: str | None = None) -> None:
        self._run = run
        self._work = work
        self._max_ahead = max_ahead
        self.heartbeat = HeartbeatWriter(run.followers, name or new_name(), lease_seconds)
        self._watcher = Watcher(run.followers, lease_seconds)
        self._claims = Claims(run, self.heartbeat.current.name, self._watcher)
        self._version: int | None = None
        self._used = GrowingLog(run.used)  # in live mode an update uses one batch
        self._begun: deque[_Begun] = deque()
        self._finisher: Finisher[tuple[Claim, BatchCounts, bool]] = Finisher()
        self._busy_since = 0.0

    def follow(self, *, stopping: Callable[[], bool] = lambda: False, progress: Progress = lambda heartbeat: None) -> int:
        """Make batches until the run has ended or `stopping` says so; returns how many were made.

        What is sampled by then is graded and written, what is only begun is left to others. progress: called with each new
        state, and again at every look while there is nothing to do. Raises whatever the work raises; the heartbeat then says
        so.
        """
        wait = POLL_SECONDS
        with self.heartbeat.beating():
            try:
                while not (stopping() or has_ended(self._run)):
                    waiting_for = self._step(progress)
                    if waiting_for is None:
                        wait = POLL_SECONDS
                        continue
                    self._report(waiting_for, progress)
                    time.sleep(wait)
                    wait = min(1.5 * wait, SLOWEST_POLL_SECONDS)
                self._take_finished(progress, wait=True)
            except Exception:
                self._let_finish()
                raise
            finally:
                for begun in self._begun:
                    self._claims.release(begun.claim)
            return self.heartbeat.current.batches

    def _step(self, progress: Progress) -> str | None:
        """Begin what may begin, and sample one batch. Returns None when something was done, else what there is to wait for."""
        if self._take_finished(progress, wait=False):
            return None
        idle = self._begin(progress)
        if self._begun:
            self._sample(progress)
            return None
        return None if idle is None else self._grading() or idle

    def _begin(self, progress: Progress) -> str | None:
        """Claim and begin as many batches as the engine takes. Returns what keeps it from beginning the first one, if anything.

        A newer policy waits until the batches that have begun are sampled.
        """
        while len(self._begun) < self._work.at_once:
            newest = newest_version(self._run.policies)
            if newest is None:
                return f"waiting for the first policy{self._without_trainer()}"
            claim = self._claims.next_free(launch_limit(self._used.updates(), self._max_ahead), self._used.used)
            if claim is None:
                return f"paused: {self._max_ahead} batches are ahead of training{self._without_trainer()}"
            version, folder = newest
            if version != self._version and (self._begun or not self._load(version, folder, progress)):
                return None
            if not self._claims.take(claim):
                return None
            self._start(claim, version)
        return None

    def _without_trainer(self) -> str:
        return "" if TRAINER in self._watcher.recent() else "; no trainer is alive"

    def _start(self, claim: Claim, version: int) -> None:
        if not (self._begun or self._finisher.busy):
            self._busy_since = time.monotonic()
        try:
            self._begun.append(_Begun(claim, version, self._work.begin(claim.batch, version)))
        except BaseException:
            self._claims.release(claim)
            raise

    def _load(self, version: int, folder: Path, progress: Progress) -> bool:
        """Load a policy; False when it is gone."""
        self._report(f"loading version {version}", progress, version=version)
        self._version = None  # until all of it is there
        try:
            require_own(folder, self._run.run_id)
            self._work.load_policy(folder)
        except (DataError, OSError):
            if is_ready(folder):
                raise
            return False  # cleaned away meanwhile: newer ones are there
        self._version = version
        return True

    def _sample(self, progress: Progress) -> None:
        """Sample the batch that began first, and have it finished beside what comes next."""
        begun = self._begun[0]
        batch, version = begun.claim.batch, begun.version
        self._report(f"generating batch {batch} with version {version}", progress, version=version, batch=batch)
        self._version = begun.batch.sample()
        self._take_finished(progress, wait=True)
        self._finisher.give(partial(self._finish, begun))
        self._begun.popleft()

    def _finish(self, begun: _Begun) -> tuple[Claim, BatchCounts, bool]:
        """Grade a batch, write its shard and decide it; in the finisher's thread. True when this follower decided it."""
        counts: list[BatchCounts] = []
        try:
            won = self._claims.publish(begun.claim, begun.version, lambda path: counts.append(begun.batch.finish(path)))
        except BaseException:
            self._claims.release(begun.claim)
            raise
        return begun.claim, counts[0], won

    def _take_finished(self, progress: Progress, *, wait: bool) -> bool:
        """Count the batch that was finished, if one was. Raises what finishing it raised."""
        finished = self._finisher.take(wait=wait)
        if finished is None:
            return False
        claim, made, won = finished
        batch = self._begun[0].claim.batch if self._begun else None
        now, current = time.monotonic(), self.heartbeat.current
        busy, self._busy_since = now - self._busy_since, now
        if not won:
            log.warning("batch %d was made by another follower, which took this one for dead", claim.batch)
            self._report("between batches", progress, batch=batch)
            return True
        self._report(
            "between batches",
            progress,
            batch=batch,
            version=self._version,
            batches=current.batches + 1,
            responses=current.responses + made.responses,
            tokens=current.tokens + made.tokens,
            busy_seconds=current.busy_seconds + busy,
        )
        return True

    def _grading(self) -> str | None:
        return "grading the last batch" if self._finisher.busy else None

    def _let_finish(self) -> None:
        """After an error: what is sampled is not lost with what failed."""
        try:
            self._finisher.take(wait=True)
        except Exception as error:
            log.warning("the batch before it failed too: %s", error)

    def _report(self, state: str, progress: Progress, **changes: int | float | None) -> None:
        if state != self.heartbeat.current.state or changes:
            self.heartbeat.write(state, **changes)
        progress(self.heartbeat.current)
