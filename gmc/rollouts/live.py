"""Training on what followers make: the delays are whatever really happens."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gmc.delays.base import GroupRef, delay_of
from gmc.errors import DataError
from gmc.live.claims import reopen_lost
from gmc.live.cleanup import clean_policies
from gmc.live.ending import mark_ended
from gmc.live.frontier import Frontier
from gmc.live.heartbeats import HeartbeatWriter, Watcher
from gmc.live.waiting import wait_for_batch
from gmc.ranks import ALONE, Ranks
from gmc.rollouts.resampling import SetAsideAccount
from gmc.rollouts.source import Progress, RolloutSource
from gmc.store.logs import UsedBatches
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.groups import in_groups
from gmc.store.shards.reader import read_metadata
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.store import RolloutStore, StoredShard


class LiveSource(RolloutSource):
    """Hands out the oldest complete batch not yet used, whoever made it and however old it is. Nothing is dropped.

    heartbeat: the trainer's own, None on a rank other than 0. prompts: P, groups of a batch. patience_seconds: how long an
    update may wait. keep_every: every so many versions, a policy stays published for evaluation. check: refuses a shard that
    does not fit the run, which is then set aside. stopping: polled while waiting. ranks: the processes that train together;
    rank 0 waits for all.
    """

    def __init__(
        self,
        run: RunDirectory,
        store: RolloutStore,
        heartbeat: HeartbeatWriter | None,
        *,
        prompts: int,
        patience_seconds: float,
        keep_every: int,
        check: Callable[[StoredShard], None],
        stopping: Callable[[], bool] = lambda: False,
        ranks: Ranks = ALONE,
    ) -> None:
        self._run = run
        self._store = store
        self._prompts = prompts
        self._check = check
        self._patience_seconds = patience_seconds
        self._keep_every = keep_every
        self._stopping = stopping
        self._ranks = ranks
        self._used = UsedBatches()
        self._frontier = Frontier(run)
        self._set_aside = SetAsideAccount()
        self._logged: dict[str, float] = {}
        self._next: StoredShard | None = None
        self._read: list[list[Rollout]] = []
        self._heartbeat = heartbeat
        if heartbeat is not None:
            self._watcher = Watcher(run.followers, heartbeat.current.lease_seconds)
            reopen_lost(run)

    @property
    def waiting(self) -> int:
        return self._prompts * sum(1 for _ in self._frontier.unused(self._used))

    @property
    def to_fill(self) -> int | None:
        """None: followers decide how much they make before the first update."""
        return None

    def metrics(self) -> dict[str, float]:
        """The groups waiting, those set aside when the batches used so far were made, and what rewards logged of the last one.

        Batches are trained on in the order they were launched, so no length is favored.
        """
        return {"rollouts/groups_waiting": float(self.waiting), **self._set_aside.metrics(), **self._logged}

    def state_dict(self) -> dict[str, Any]:
        """The account of what was set aside. Live delays are measured, so used.jsonl and the shards say the rest."""
        return {"set_aside": asdict(self._set_aside)}

    def load_state_dict(self, state: Mapping[str, Any], used: Sequence[Sequence[GroupRef]]) -> None:
        groups_used = Counter(group.batch for groups in used for group in groups)
        partly = [batch for batch, count in groups_used.items() if count != self._prompts]
        if partly:  # of a run that had a --delay before
            how = "in part" if groups_used[min(partly)] < self._prompts else "more than once"
            raise DataError(
                f"{self._run.path}: batch {min(partly)} is used {how}, and --live uses each whole and once; keep the --delay"
            )
        self._used = UsedBatches(groups_used)
        stored = {stored.batch: stored for stored in self._store.list()}
        missing = groups_used.keys() - stored.keys()
        if missing:
            raise self._store.missing(min(missing))
        if "set_aside" in state:
            self._set_aside = SetAsideAccount.parse(state["set_aside"])
            return
        for batch in sorted(groups_used):  # the checkpoint is of a run that had a --delay until now
            self._set_aside.add(read_metadata(stored[batch].path).set_aside)

    def launch(self, update: int, progress: Progress | None = None) -> bool:
        self._write_heartbeat(f"waiting for the batch of update {update}")
        self._next = self._ranks.from_rank_0(self._wait)
        return self._next is not None

    def take(self, update: int) -> list[list[Rollout]]:
        assert self._next is not None
        stored, self._next = self._next, None
        self._write_heartbeat(f"update {update} on batch {stored.batch}, delay {delay_of(update, stored.version)}")
        self._used.add(stored.batch)
        metadata = read_metadata(stored.path)
        self._set_aside.add(metadata.set_aside)
        self._logged = {f"reward/log/{name}": value for name, value in metadata.reward_log.items()}
        groups_PG, self._read = self._read or self._read_groups(stored), []
        return groups_PG

    def _require_usable(self, stored: StoredShard) -> None:
        """Read the whole shard: what is damaged or does not fit raises here, on rank 0, before anything counts on it."""
        self._check(stored)
        self._read = self._read_groups(stored)

    def _read_groups(self, stored: StoredShard) -> list[list[Rollout]]:
        groups_PG = in_groups(self._store.read(stored).rollouts)
        if len(groups_PG) != self._prompts:
            raise DataError(f"{stored.path}: it holds {len(groups_PG)} groups, an update of this run takes {self._prompts}")
        return groups_PG

    def published(self, version: int, keep: int | None = None) -> None:
        self._write_heartbeat(f"published version {version}", version=version)
        clean_policies(self._run, self._watcher, self._keep_every, keep)

    def ended(self, updates: int) -> None:
        mark_ended(self._run, updates)

    def _wait(self) -> StoredShard | None:
        return wait_for_batch(
            self._run,
            self._frontier,
            self._used,
            watcher=self._watcher,
            patience_seconds=self._patience_seconds,
            check=self._require_usable,
            stopping=self._stopping,
        )

    def _write_heartbeat(self, state: str, **changes: Any) -> None:
        if self._heartbeat is not None:
            self._heartbeat.write(state, **changes)
