"""The trainer's wait for the oldest complete batch that it has not used."""

import logging
import time
from collections.abc import Callable

from gmc.errors import DataError, GmcError, UsageError
from gmc.live.claims import read_ledger, reopen_lost
from gmc.live.frontier import Frontier
from gmc.live.heartbeats import TRAINER, Heartbeat, Watcher
from gmc.store.files import set_aside
from gmc.store.logs import UsedBatches
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.store import StoredShard

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
FIRST_REPORT_SECONDS = 10.0
REPEAT_SECONDS = 60.0


def wait_for_batch(
    run: RunDirectory,
    frontier: Frontier,
    used: UsedBatches,
    *,
    watcher: Watcher,
    patience_seconds: float,
    check: Callable[[StoredShard], None] = lambda stored: None,
    stopping: Callable[[], bool] = lambda: False,
) -> StoredShard | None:
    """The oldest complete batch not in `used`, as soon as there is one; None when `stopping` says so.

    check: raises `UsageError` or `DataError` for a shard that training cannot use. It is set aside with a warning, and its
    batch is made again: an old follower must not stop a run.
    What is awaited is logged after ten seconds and then every minute. Raises `GmcError` that says it too after
    `patience_seconds`.
    """
    started = time.monotonic()
    next_report = started + FIRST_REPORT_SECONDS
    while True:
        stored = next(frontier.unused(used), None)
        if stored is not None and not _passes(run, stored, check):
            continue
        if stored is not None or stopping():
            return stored
        alive = watcher.look()
        now = time.monotonic()
        if now - started > patience_seconds:
            raise GmcError(
                f"{run.path}: no unused batch for {now - started:.0f} s: {describe_wait(run, alive)}. "
                "Go on with --resume, or wait longer with --set live.patience_seconds=…"
            )
        if now > next_report:
            log.info("waiting for a batch: %s", describe_wait(run, alive))
            next_report = now + REPEAT_SECONDS
        time.sleep(POLL_SECONDS)


def _passes(run: RunDirectory, stored: StoredShard, check: Callable[[StoredShard], None]) -> bool:
    try:
        check(stored)
    except (UsageError, DataError) as error:
        (aside,) = set_aside([stored.path])
        log.warning("set aside as %s, batch %d is made again: %s", aside, stored.batch, error)
        reopen_lost(run)
        return False
    return True


def describe_wait(run: RunDirectory, alive: dict[str, Heartbeat]) -> str:
    """Who is expected to make the next batch, in one clause."""
    followers = {name: heartbeat for name, heartbeat in alive.items() if name != TRAINER}
    if not followers:
        return f"no follower is alive; start one with gmc rollout --follow --run {run.path}"
    holders = [(batch, holder) for batch, (_, holder) in sorted(read_ledger(run).claimed.items())]
    busy = [f"batch {batch} by {holder}" for batch, holder in holders if holder in followers]
    orphans = [f"batch {batch} of the dead {holder}" for batch, holder in holders if holder not in followers]
    idle = [f"{name} is {heartbeat.state}" for name, heartbeat in followers.items() if heartbeat.batch is None]
    return "; ".join(busy + orphans + idle)
