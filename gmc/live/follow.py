"""A follower: loads the newest policy, makes the batches that are still to be made with it, and stops when the run ends."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gmc.errors import DataError, GmcError
from gmc.live.claims import Claim, Claims
from gmc.live.ending import has_ended
from gmc.live.heartbeats import HeartbeatWriter, Watcher, new_name
from gmc.live.pacing import launch_limit
from gmc.store.files import is_ready
from gmc.store.logs import GrowingLog
from gmc.store.policies import newest_version, read_policy_info
from gmc.store.run_directory import RunDirectory

log = logging.getLogger(__name__)

POLL_SECONDS, SLOWEST_POLL_SECONDS = 0.2, 2.0
"""Between looks while there is nothing to do; the wait grows by a half each time, so that many idle followers cost little."""


@dataclass(frozen=True)
class BatchCounts:
    """What one batch came to. version: of the policy that ended it, and is held now."""

    responses: int
    tokens: int
    version: int


@dataclass(frozen=True)
class Work:
    """What a follower can do. Called from one thread.

    load_policy: take the policy in this folder for all batches from now on. make_batch: make launch batch `batch` with the
    policy of version `version`, which was loaded last, and write its shard at the path.
    """

    load_policy: Callable[[Path], None]
    make_batch: Callable[[int, int, Path], BatchCounts]


def require_own(folder: Path, run_id: str) -> None:
    """Raise `GmcError` for a policy of another run than the one that is followed."""
    found = read_policy_info(folder).run_id
    if found != run_id:
        raise GmcError(
            f"{folder}: a policy of run {found}, this follower follows {run_id}; the run was started anew. "
            "Start the follower again."
        )


class Follower:
    """One process that follows a live run. `follow` does the work; `heartbeat` tells others about it."""

    def __init__(self, run: RunDirectory, work: Work, *, max_ahead: int, lease_seconds: float, name: str | None = None) -> None:
        self._run = run
        self._work = work
        self._max_ahead = max_ahead
        self.heartbeat = HeartbeatWriter(run.followers, name or new_name(), lease_seconds)
        self._claims = Claims(run, self.heartbeat.current.name, Watcher(run.followers, lease_seconds))
        self._version: int | None = None
        self._used = GrowingLog(run.used)  # in live mode an update uses one batch

    def follow(self, *, stopping: Callable[[], bool] = lambda: False, progress: Callable[[str], None] = lambda _: None) -> int:
        """Make batches until the run has ended or `stopping` says so; returns how many were made.

        progress: called with each new state, in words. Raises whatever the work raises; the heartbeat then says so.
        """
        wait = POLL_SECONDS
        with self.heartbeat.beating():
            while not (stopping() or has_ended(self._run)):
                waiting_for = self._step(progress)
                if waiting_for is None:
                    wait = POLL_SECONDS
                    continue
                self._report(waiting_for, progress)
                time.sleep(wait)
                wait = min(1.5 * wait, SLOWEST_POLL_SECONDS)
            return self.heartbeat.current.batches

    def _step(self, progress: Callable[[str], None]) -> str | None:
        """Make one batch. Returns None when something was done, else what keeps the follower from working."""
        newest = newest_version(self._run.policies)
        if newest is None:
            return "waiting for the first policy"
        claim = self._claims.next_free(launch_limit(self._used.updates(), self._max_ahead), self._used.used)
        if claim is None:
            return f"paused: {self._max_ahead} batches are ahead of training"
        version, folder = newest
        if version != self._version and not self._load(version, folder, progress):
            return None
        if self._claims.take(claim):
            self._make(claim, version, progress)
        return None

    def _load(self, version: int, folder: Path, progress: Callable[[str], None]) -> bool:
        """Load a policy; False when it is gone."""
        self._report(f"loading version {version}", progress, version=version)
        try:
            require_own(folder, self._run.run_id)
            self._work.load_policy(folder)
        except (DataError, OSError):
            if is_ready(folder):
                raise
            return False  # cleaned away meanwhile: newer ones are there
        self._version = version
        return True

    def _make(self, claim: Claim, version: int, progress: Callable[[str], None]) -> None:
        self._report(f"generating batch {claim.batch} with version {version}", progress, version=version, batch=claim.batch)
        made: list[BatchCounts] = []
        started = time.monotonic()
        try:
            won = self._claims.publish(
                claim, version, lambda path: made.append(self._work.make_batch(claim.batch, version, path))
            )
        except BaseException:
            self._claims.release(claim)
            raise
        current, self._version = self.heartbeat.current, made[0].version
        if not won:
            log.warning("batch %d was made by another follower, which took this one for dead", claim.batch)
            self._report("between batches", progress, batch=None)
            return
        self._report(
            "between batches",
            progress,
            batch=None,
            version=made[0].version,
            batches=current.batches + 1,
            responses=current.responses + made[0].responses,
            tokens=current.tokens + made[0].tokens,
            busy_seconds=current.busy_seconds + time.monotonic() - started,
        )

    def _report(self, state: str, progress: Callable[[str], None], **changes: int | float | None) -> None:
        if state != self.heartbeat.current.state or changes:
            self.heartbeat.write(state, **changes)
            progress(state)
