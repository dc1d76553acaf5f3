"""The trainer's side of live mode: the queue whose delays are whatever really happens."""

from collections.abc import Callable, Sequence
from typing import Any

from gmc.delays.base import GroupRef, delay_of
from gmc.errors import DataError
from gmc.live.claims import reopen_lost
from gmc.live.followers import Pulse, Watcher
from gmc.live.waiting import wait_for_batch
from gmc.ranks import ALONE, Ranks
from gmc.store.files import remove_leftovers
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.store import RolloutStore, StoredShard


class LiveQueue:
    """Hands out the oldest complete batch not yet used, whoever made it and however old it is. Nothing is dropped.

    pulse: the trainer's own heartbeat, None on a rank that does not lead. prompts: P, groups of a batch. patience_seconds: how
    long an update may wait. check: refuses a shard that does not fit the run. stopping: polled while
    waiting. ranks: the processes that train together; the lead waits for all.
    """

    calibrated_clock: float | None = None
    """Live delays are measured, not simulated, so there is no clock to keep."""
    to_fill: int | None = None
    """A live trainer generates nothing itself."""

    def __init__(
        self,
        run: RunDirectory,
        store: RolloutStore,
        pulse: Pulse | None,
        *,
        prompts: int,
        patience_seconds: float,
        check: Callable[[StoredShard], None],
        say: Callable[[str], None],
        stopping: Callable[[], bool] = lambda: False,
        ranks: Ranks = ALONE,
    ) -> None:
        self._run = run
        self._store = store
        self._prompts = prompts
        self._check = check
        self._patience_seconds = patience_seconds
        self._say = say
        self._stopping = stopping
        self._ranks = ranks
        self._used: set[int] = set()
        self._next: StoredShard | None = None
        self._pulse = pulse
        if pulse is not None:
            self.watcher = Watcher(run.followers, pulse.current.lease_seconds)
            remove_leftovers(run.claims)
            reopen_lost(run)

    def tell(self, state: str, **changes: Any) -> None:
        """Say in the heartbeat what the trainer does."""
        if self._pulse is not None:
            self._pulse.say(state, **changes)

    @property
    def waiting(self) -> int:
        """Groups on disk and not yet taken."""
        return self._prompts * sum(stored.batch not in self._used for stored in self._store.list())

    def length_metrics(self) -> dict[str, float]:
        """Nothing: batches are trained on in the order they were launched, so no length is favored."""
        return {}

    def replay(self, used: Sequence[Sequence[GroupRef]]) -> None:
        """Know the batches of the updates in `used` as taken. Raises `DataError` when one's shard is missing."""
        self._used = {group.batch for groups in used for group in groups}
        missing = self._used - {stored.batch for stored in self._store.list()}
        if missing:
            raise DataError(f"{self._store.directory}: the shard of batch {min(missing)} is missing; restore it")

    def launch(self, update: int, progress: Callable[[int], None] | None = None) -> bool:
        """Wait for the batch of `update`; False when interrupted by `stopping`."""
        self.tell(f"waiting for the batch of update {update}")
        self._next = self._ranks.from_lead(self._wait)
        return self._next is not None

    def _wait(self) -> StoredShard | None:
        return wait_for_batch(
            self._run,
            self._store,
            self._used,
            watcher=self.watcher,
            patience_seconds=self._patience_seconds,
            say=self._say,
            stopping=self._stopping,
        )

    def take(self, update: int) -> list[list[Rollout]]:
        """The groups of the batch that `launch` waited for."""
        assert self._next is not None
        stored, self._next = self._next, None
        self.tell(f"update {update} on batch {stored.batch}, delay {delay_of(update, stored.version)}")
        self._check(stored)
        rows = self._store.read(stored).rollouts
        groups_PG: list[list[Rollout]] = [[] for _ in range(rows[-1].group + 1)]
        for row in rows:
            groups_PG[row.group].append(row)
        if len(groups_PG) != self._prompts:
            raise DataError(f"{stored.path}: it holds {len(groups_PG)} groups, an update of this run takes {self._prompts}")
        self._used.add(stored.batch)
        return groups_PG
