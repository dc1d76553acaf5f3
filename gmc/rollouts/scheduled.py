"""Training on generated rollouts: shards on disk, and a delay model that says which is launched and used when."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from gmc.delays.base import DelayModel, GroupRef, GroupTimes
from gmc.engines.base import Engine
from gmc.errors import GmcError
from gmc.ranks import ALONE, Ranks
from gmc.rollouts.elsewhere import Elsewhere
from gmc.rollouts.group_reader import GroupReader
from gmc.rollouts.launch_account import LaunchAccount
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.producer import BatchProducer, Here
from gmc.rollouts.scheduled_errors import disagreement, more_batches, other_delay, other_version
from gmc.rollouts.source import Progress, RolloutSource
from gmc.store.checkpoints import CURE as CHECKPOINT_CURE
from gmc.store.records import checked
from gmc.store.shards.launches import Launches, LaunchLog
from gmc.store.shards.reader import Launch, count_groups, read_launch, read_lengths, read_metadata
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.store import RolloutStore, StoredShard

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _State:
    """What a checkpoint keeps. delay: the state of the delay model."""

    delay: dict[str, Any]
    planned_updates: int


_STATE = TypeAdapter(_State)


class ScheduledSource(RolloutSource):
    """Launches what a delay model asks for and hands out the groups it names. Every rollout passes through a shard on disk.

    maker: None for a delay that generates nothing. spec: the delay as the user wrote it. planned_updates: the horizon N.
    stopping: polled between batches, so that a long filling can be interrupted. ranks: the processes that train together; each
    keeps the same state, rank 0 alone writes shards. start_version: which version of the shards the run's initial weights
    are, None where that is not known. import_batch: imports a batch of version 0 from another run, when it is there;
    importable: which batches those are.
    elsewhere: processes that make the batches in place of the maker; the results are the same, and training waits for a
    batch only when it needs it. launches: the run's log of them.
    """

    def __init__(
        self,
        store: RolloutStore,
        delays: DelayModel,
        maker: RolloutMaker | None,
        *,
        spec: str,
        planned_updates: int,
        stopping: Callable[[], bool] = lambda: False,
        ranks: Ranks = ALONE,
        start_version: int | None = 0,
        import_batch: Callable[[int], StoredShard | None] = lambda batch: None,
        importable: Collection[int] = (),
        elsewhere: Elsewhere | None = None,
        launches: LaunchLog | None = None,
    ) -> None:
        self._store = store
        self._delays = delays
        self._maker = maker
        self._producer: BatchProducer | None = elsewhere
        if elsewhere is None and maker is not None:
            self._producer = Here(maker, store, ranks)
        self._spec = spec
        self._planned_updates = planned_updates
        self._stopping = stopping
        self._ranks = ranks
        self._start_version = start_version
        self._import_batch = import_batch
        self._importable = frozenset(importable)
        self._log = launches
        self._stored: dict[int, StoredShard] = {stored.batch: stored for stored in store.list()}
        self._held: dict[int, int] = {}
        self._account = LaunchAccount(delays.uses)
        self._reader = GroupReader(store, start_version)
        self._logged: Mapping[str, float] = {}

    @property
    def waiting(self) -> int:
        return self._delays.waiting + sum(self._held.values())

    @property
    def to_fill(self) -> int | None:
        first = self._delays.first_launches
        if first is None or self._in_background:
            return None
        return sum(batch not in self._stored and batch not in self._importable for batch in range(first))

    @property
    def knows_lags(self) -> bool:
        return self._start_version is not None

    @property
    def engine(self) -> Engine | None:
        return None if self._maker is None else self._maker.engine

    def state_dict(self) -> dict[str, Any]:
        return {"delay": self._delays.state_dict(), "planned_updates": self._planned_updates}

    def load_state_dict(self, state: Mapping[str, Any], used: Sequence[Sequence[GroupRef]]) -> None:
        if not {"delay", "planned_updates"} <= state.keys():
            raise other_delay(self._spec)
        saved = checked(_STATE, state, "the state of the checkpoint", CHECKPOINT_CURE)
        planned = saved.planned_updates
        try:
            self._delays.load_state_dict(saved.delay)
        except (KeyError, TypeError, ValueError) as error:
            raise other_delay(self._spec, f" ({error})") from error
        self._calibrate()
        known = {} if self._log is None else self._log.read()
        late: int | None = None
        for update, groups in enumerate(used):
            late = self._relaunch(update, planned, known)
            if self._take(update) != list(groups):
                raise disagreement(self._spec, update)
        if late is not None:
            log.warning(
                "%d updates were planned and now %d are: the rollouts from batch %d on are sampled only now, by version %d. A "
                "run planned for %d would have sampled them earlier, so it learns otherwise; for its result, train anew: gmc "
                "train --run ANOTHER --updates %d",
                *(planned, self._planned_updates, late, len(used), self._planned_updates, self._planned_updates),
            )
        self._hold(planned)

    def _hold(self, planned: int) -> None:
        """Let batches wait that the run launched for updates beyond its end, when that was later than it is now."""
        unplanned = range(self._planned_updates, planned)
        ahead = [batch for batch in self._stored if batch in unplanned and batch not in self._account.batches]
        self._held = {batch: count_groups(self._stored[batch].path) for batch in ahead}
        if self._held:
            log.info(
                "%d batches (from number %d) were launched for updates after %d and wait; --resume --updates %d uses them",
                len(ahead),
                ahead[0],
                self._planned_updates,
                planned,
            )

    def launch(self, update: int, progress: Progress | None = None) -> bool:
        if update == 0:
            self._calibrate(progress)
        while (batch := self._delays.next_launch(update)) is not None:
            if self._stopping():
                return False
            stored = self._find(batch, update)
            if stored is not None:
                self._accept(stored, update)
            else:
                self._start(batch, update, progress)
                self._launch(batch, update)
        self._refuse_surplus(update, self._account.batches)
        return True

    def settle(self) -> None:
        if self._producer is not None:
            for batch in self._producer.of_later_versions():
                self._stored[batch] = self._producer.collect(batch)

    def take(self, update: int) -> list[list[Rollout]]:
        taken = self._take(update)
        groups = [self._group(reference) for reference in taken]
        if self._in_background:
            self._logged = self._logged_of({reference.batch for reference in taken})
        return groups

    def metrics(self) -> dict[str, float]:
        """The groups waiting, the account of lengths, and what reward functions logged of the batches launched for this update.

        Of batches in work while training goes on nothing is known: what was logged of those that are made elsewhere is that of
        the batches taken now.
        """
        logged = self._logged if self._maker is None else self._maker.reward.metrics()
        metrics = {"rollouts/groups_waiting": float(self.waiting)} | {f"reward/log/{key}": n for key, n in logged.items()}
        return metrics if self._unknown is not None else self._account.metrics() | metrics

    def _take(self, update: int) -> list[GroupRef]:
        taken = self._delays.take(update)
        self._account.taken(taken)
        return taken

    def _logged_of(self, batches: set[int]) -> dict[str, float]:
        """What reward functions logged while these were made, the mean of those that logged a number."""
        logs = [read_metadata(self._stored[batch].path).reward_log for batch in sorted(batches)]
        names = dict.fromkeys(name for log in logs for name in log)
        return {name: fmean(log[name] for log in logs if name in log) for name in names}

    def _relaunch(self, update: int, planned: int, known: Launches) -> int | None:
        """Tell the delay model what was launched before `update`. Returns a batch that was due and not planned yet.

        planned: the updates planned until then; batches beyond may be missing, because they were never launched. known: what
        the log says of the launches.
        """
        while (batch := self._delays.next_launch(update)) is not None:
            stored = self._stored.get(batch)
            if stored is None:
                if batch >= planned:
                    return batch  # more updates are planned since: it is still to be launched, by a later version
                if self._in_background and update == 0:  # it was in work when the run ended, and version 0 is at hand
                    self._start(batch, update)
                    self._launch(batch, update)
                    continue
                raise self._store.missing(batch, update)
            if stored.version > update:
                return None
            if stored.version < update:
                raise disagreement(self._spec, update)
            launch = known.get((batch, update))
            self._record_launch(batch, update, launch or self._look_up(stored), logged=launch is not None)
        return None

    def _look_up(self, stored: StoredShard) -> Launch:
        return self._unknown or read_launch(stored.path)

    def _record_launch(self, batch: int, version: int, launch: Launch, *, logged: bool = False) -> list[GroupTimes]:
        """Tell the delay model of a launch. logged: whether the run's log knows it."""
        if (launches := self._log) is not None and not logged and self._unknown is None:
            self._ranks.from_rank_0(lambda: launches.add(batch, version, launch))
        self._account.launched(batch, launch)
        return self._delays.launched(batch, version, launch.lengths_PG)

    def _find(self, batch: int, version: int) -> StoredShard | None:
        if batch not in self._stored and version == 0:
            imported = self._ranks.from_rank_0(lambda: self._import_batch(batch))
            if imported is not None:
                self._stored[batch] = imported
        return self._stored.get(batch)

    def _accept(self, stored: StoredShard, update: int) -> None:
        if stored.version != update:
            raise other_version(self._spec, stored, update)
        self._record_launch(stored.batch, update, read_launch(stored.path))

    def _start(self, batch: int, version: int, progress: Progress | None = None) -> None:
        if self._producer is None:
            raise GmcError(f"--delay {self._spec} generates nothing, and batch {batch} does not exist")
        self._producer.start(batch, version, progress)

    def _launch(self, batch: int, version: int) -> None:
        """Launch a batch that was started, and collect it unless it is in work while training goes on."""
        assert self._producer is not None
        times_P = self._record_launch(batch, version, self._unknown or self._producer.launch(batch))
        self._producer.launched(batch, version, times_P)
        if self._unknown is None:
            self._stored[batch] = self._producer.collect(batch)

    @property
    def _in_background(self) -> bool:
        """Whether batches are made while training goes on."""
        return self._producer is not None and self._producer.unknown is not None

    @property
    def _unknown(self) -> Launch | None:
        """What is recorded of a batch that is launched before it is known what it comes to; None where that is known."""
        return None if self._producer is None or self._delays.reads_lengths else self._producer.unknown

    def _calibrate(self, progress: Progress | None = None) -> None:
        if not self._delays.calibration_batches:
            return
        batches = range(self._delays.calibration_batches)
        for batch in batches:
            if self._find(batch, 0) is None:
                self._start(batch, 0, progress)
        self._delays.calibrate([self._lengths(batch) for batch in batches])

    def _lengths(self, batch: int) -> list[list[int]]:
        """Response lengths of a batch that is stored or started, by group."""
        if batch in self._stored:
            return read_lengths(self._stored[batch].path)
        assert self._producer is not None
        return self._producer.launch(batch).lengths_PG

    def check_start(self, update: int) -> None:
        first = self._delays.first_launches
        if update == 0 and first is not None:
            self._refuse_surplus(0, range(first))
        elif 0 < update < self._planned_updates:  # what this version made may still be launched
            own = {batch for batch, stored in self._stored.items() if stored.version >= update}
            self._refuse_surplus(update, self._account.batches | own)

    def _refuse_surplus(self, update: int, launched: Collection[int]) -> None:
        if self._producer is None:
            return
        surplus = [batch for batch in self._stored if batch not in launched and batch not in self._held]
        if surplus:
            raise more_batches(self._spec, self._store.directory, surplus, update, self._delays.first_launches)

    def _group(self, reference: GroupRef) -> list[Rollout]:
        if self._producer is not None and reference.batch in self._producer:
            self._stored[reference.batch] = self._producer.collect(reference.batch)
        stored = self._stored.get(reference.batch)
        if stored is None:
            raise self._store.missing(reference.batch)
        return self._reader.group(stored, reference.group)
