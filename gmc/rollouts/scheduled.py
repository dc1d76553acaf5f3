"""Training on generated rollouts: shards on disk, and a delay model that says which is launched and used when."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from gmc.delays.base import DelayModel, GroupRef, GroupTimes
from gmc.engines.base import Engine
from gmc.errors import DataError, GmcError, UsageError
from gmc.ranks import ALONE, Ranks
from gmc.rollouts.elsewhere import Elsewhere
from gmc.rollouts.lengths import LengthAccount
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.resampling import Made, SetAsideAccount
from gmc.rollouts.source import Progress, RolloutSource
from gmc.store.checkpoints import CURE as CHECKPOINT_CURE
from gmc.store.records import checked
from gmc.store.shards.groups import in_groups, sampled_length
from gmc.store.shards.launches import Launches, LaunchLog
from gmc.store.shards.reader import Launch, count_groups, read_launch, read_lengths, read_metadata
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.store import RolloutStore, StoredShard
from gmc.store.shards.writer import write_shard

log = logging.getLogger(__name__)

CACHED_SHARDS = 16


@dataclass(frozen=True)
class _State:
    """What a checkpoint keeps. delay: the state of the delay model."""

    delay: dict[str, Any]
    planned_updates: int


_STATE = TypeAdapter(_State)


@dataclass
class _Waiting:
    """A group launched here. uses: how many are still to come; lengths of its responses, in tokens."""

    lengths: list[int]
    uses: int


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
        self._spec = spec
        self._planned_updates = planned_updates
        self._stopping = stopping
        self._ranks = ranks
        self._start_version = start_version
        self._import_batch = import_batch
        self._importable = frozenset(importable)
        self._elsewhere = elsewhere
        self._log = launches
        self._metadata: tuple[int, ShardMetadata] | None = None
        self._stored: dict[int, StoredShard] = {stored.batch: stored for stored in store.list()}
        self._launched: set[int] = set()
        self._held: dict[int, int] = {}
        self._generated, self._trained = LengthAccount(), LengthAccount()
        self._waiting: dict[GroupRef, _Waiting] = {}
        self._set_aside = SetAsideAccount()
        self._unwritten: dict[int, Made] = {}
        self._cache: dict[int, list[Rollout]] = {}
        self._logged: Mapping[str, float] = {}

    @property
    def waiting(self) -> int:
        return self._delays.waiting + sum(self._held.values())

    @property
    def to_fill(self) -> int | None:
        first = self._delays.first_launches
        if first is None or self._elsewhere is not None:
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
            raise self._other_delay("")
        saved = checked(_STATE, state, "the state of the checkpoint", CHECKPOINT_CURE)
        planned = saved.planned_updates
        try:
            self._delays.load_state_dict(saved.delay)
        except (KeyError, TypeError, ValueError) as error:
            raise self._other_delay(f" ({error})") from error
        self._calibrate()
        known = {} if self._log is None else self._log.read()
        late: int | None = None
        for update, groups in enumerate(used):
            late = self._relaunch(update, planned, known)
            if self._take(update) != list(groups):
                raise self._disagreement(update)
        if late is not None:
            log.warning(
                "%d updates were planned and now %d are: the rollouts from batch %d on are sampled only now, by version %d. A "
                "run planned for %d would have sampled them earlier, so it learns otherwise; for its result, train anew: gmc "
                "train --run ANOTHER --updates %d",
                *(planned, self._planned_updates, late, len(used), self._planned_updates, self._planned_updates),
            )
        self._hold(planned)

    def _other_delay(self, why: str) -> DataError:
        return DataError(
            f"the checkpoint was made under another delay than --delay {self._spec}{why}; leave --delay out, and --resume "
            "takes the run's own"
        )

    def _hold(self, planned: int) -> None:
        """Let batches wait that the run launched for updates beyond its end, when that was later than it is now."""
        ahead = [batch for batch in self._stored if self._planned_updates <= batch < planned and batch not in self._launched]
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
                self._generate(batch, update, progress)
        self._refuse_surplus(update, self._launched)
        return True

    def settle(self) -> None:
        if self._elsewhere is not None:
            for batch in self._elsewhere.of_later_versions():
                self._stored[batch] = self._elsewhere.collect(batch)

    def take(self, update: int) -> list[list[Rollout]]:
        taken = self._take(update)
        groups = [self._group(reference) for reference in taken]
        if self._elsewhere is not None:
            self._logged = self._logged_of({reference.batch for reference in taken})
        return groups

    def metrics(self) -> dict[str, float]:
        """The groups waiting, and mean response lengths (tokens) of all that was generated and of all that was trained on.

        A gap between the two is a length bias. They are left out when nothing was generated here. Besides, what reward
        functions logged about the batches launched for this update. Of batches in work while training goes on nothing is known:
        what was logged of those that are made elsewhere is that of the batches taken now.
        """
        logged = self._logged if self._maker is None else self._maker.reward.metrics()
        metrics = {"rollouts/groups_waiting": float(self.waiting)} | {f"reward/log/{key}": n for key, n in logged.items()}
        if self._is_blind:
            return metrics
        metrics |= self._set_aside.metrics()
        if not self._generated.count:
            return metrics
        return {
            "response/generated_length_mean_so_far": self._generated.mean,
            "response/trained_length_mean_so_far": self._trained.mean,
            **metrics,
        }

    def _take(self, update: int) -> list[GroupRef]:
        taken = self._delays.take(update)
        for reference in taken:
            if (waiting := self._waiting.get(reference)) is not None:
                self._trained.add(waiting.lengths)
                waiting.uses -= 1
                if not waiting.uses:
                    del self._waiting[reference]
        return taken

    def _logged_of(self, batches: set[int]) -> dict[str, float]:
        """What reward functions logged while these were made, the mean of those that logged a number."""
        logs = [read_metadata(self._stored[batch].path).reward_log for batch in sorted(batches)]
        names = dict.fromkeys(name for log in logs for name in log)
        return {name: fmean(log[name] for log in logs if name in log) for name in names}

    def _disagreement(self, update: int) -> DataError:
        return DataError(
            f"used.jsonl, update {update}: --delay {self._spec} launches or takes other groups than the run did; resume with "
            "the delay, seed and shards that it was started with"
        )

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
                if self._elsewhere is not None and update == 0:
                    self._launch_elsewhere(batch, update)  # it was in work when the run ended, and version 0 is at hand
                    continue
                raise self._store.missing(batch, update)
            if stored.version > update:
                return None
            if stored.version < update:
                raise self._disagreement(update)
            launch = known.get((batch, update))
            self._record_launch(batch, update, launch or self._look_up(stored), logged=launch is not None)
        return None

    def _look_up(self, stored: StoredShard) -> Launch:
        return self._elsewhere.unknown if self._elsewhere and self._is_blind else read_launch(stored.path)

    def _record_launch(self, batch: int, version: int, launch: Launch, *, logged: bool = False) -> list[GroupTimes]:
        """Tell the delay model of a launch. logged: whether the run's log knows it."""
        if (launches := self._log) is not None and not logged and not self._is_blind:
            self._ranks.from_rank_0(lambda: launches.add(batch, version, launch))
        self._launched.add(batch)
        self._set_aside.add(launch.set_aside)
        for group, lengths in enumerate(launch.lengths_PG):
            self._generated.add(lengths)
            self._waiting[GroupRef(batch, group)] = _Waiting(lengths, self._delays.uses)
        return self._delays.launched(batch, version, launch.lengths_PG)

    def _find(self, batch: int, version: int) -> StoredShard | None:
        if batch not in self._stored and version == 0:
            imported = self._ranks.from_rank_0(lambda: self._import_batch(batch))
            if imported is not None:
                self._stored[batch] = imported
        return self._stored.get(batch)

    def _accept(self, stored: StoredShard, update: int) -> None:
        if stored.version != update:
            raise DataError(
                f"{stored.path}: --delay {self._spec} wants batch {stored.batch} from policy version {update}, not "
                f"{stored.version}; train on what exists with --delay shards, or use another run directory"
            )
        self._record_launch(stored.batch, update, read_launch(stored.path))

    def _generate(self, batch: int, update: int, progress: Progress | None) -> None:
        if self._elsewhere is not None:
            self._launch_elsewhere(batch, update)
            return
        made = self._unwritten.pop(batch, None) or self._make(batch, update, progress)
        times_P = self._record_launch(batch, update, Launch(_lengths(made.rows), made.set_aside))
        self._write(batch, update, made, times_P)

    @property
    def _is_blind(self) -> bool:
        """Whether batches are launched before it is known what they come to."""
        return self._elsewhere is not None and not self._delays.reads_lengths

    def _launch_elsewhere(self, batch: int, update: int) -> None:
        assert self._elsewhere is not None
        self._elsewhere.start(batch, update)
        launch = self._elsewhere.unknown if self._is_blind else self._elsewhere.launch(batch)
        self._elsewhere.launched(batch, update, self._record_launch(batch, update, launch))
        if not self._is_blind:
            self._stored[batch] = self._elsewhere.collect(batch)

    def _make(self, batch: int, update: int, progress: Progress | None) -> Made:
        if self._maker is None:
            raise GmcError(f"--delay {self._spec} generates nothing, and batch {batch} does not exist")
        return self._maker.make(batch, update, progress)

    def _write(self, batch: int, version: int, made: Made, times_P: Sequence[GroupTimes]) -> None:
        path = self._store.path_for(batch, version)
        self._ranks.from_rank_0(lambda: self._write_shard(path, version, made, times_P))
        self._stored[batch] = StoredShard(batch, version, path)

    def _write_shard(self, path: Path, version: int, made: Made, times_P: Sequence[GroupTimes]) -> None:
        assert self._maker is not None
        timed = [
            replace(row, launched_at=times_P[row.group].launched_at, ready_at=times_P[row.group].ready_at) for row in made.rows
        ]
        if self._metadata is None or self._metadata[0] != version:
            self._metadata = (version, self._maker.metadata(version))
        write_shard(path, timed, replace(self._metadata[1], set_aside=made.set_aside))

    def _calibrate(self, progress: Progress | None = None) -> None:
        if not self._delays.calibration_batches:
            return
        lengths_BPG, batches = [], range(self._delays.calibration_batches)
        if self._elsewhere is not None:
            for batch in batches:
                if self._find(batch, 0) is None:
                    self._elsewhere.start(batch, 0)
        for batch in batches:
            stored = self._find(batch, 0)
            if stored is not None:
                lengths_BPG.append(read_lengths(stored.path))
            elif self._elsewhere is not None:
                lengths_BPG.append(self._elsewhere.launch(batch).lengths_PG)
            else:
                self._unwritten[batch] = self._make(batch, 0, progress)
                lengths_BPG.append(_lengths(self._unwritten[batch].rows))
        self._delays.calibrate(lengths_BPG)

    def check_start(self, update: int) -> None:
        first = self._delays.first_launches
        if update == 0 and first is not None:
            self._refuse_surplus(0, range(first))
        elif 0 < update < self._planned_updates:  # what this version made may still be launched
            own = {batch for batch, stored in self._stored.items() if stored.version >= update}
            self._refuse_surplus(update, self._launched | own)

    def _refuse_surplus(self, update: int, launched: Collection[int]) -> None:
        if self._maker is None and self._elsewhere is None:
            return
        surplus = [batch for batch in self._stored if batch not in launched and batch not in self._held]
        if surplus:
            first = self._delays.first_launches
            starts = "response lengths decide how many it starts from" if first is None else f"it starts from {first}"
            cure = (
                f"Import as many as are needed into a new run with --run NEW --rollouts {self._store.directory.parent}, use a "
            )
            cure += "longer delay, or train on all of them with --delay shards"
            raise UsageError(
                f"{self._store.directory}: {len(surplus)} rollout batches (from number {surplus[0]}) are more than --delay "
                f"{self._spec} has launched by update {update} ({starts}). "
                + ("Move them elsewhere, and --resume goes on" if update else cure)
            )

    def _counted(self, row: Rollout) -> Rollout:
        """The row with versions counted from this run's initial weights."""
        first, own = self._start_version, row.token_versions
        if not first:  # they count from it already, or nobody knows
            return row
        shifted = None if own is None else [version - first for version in own]
        return replace(row, policy_version=row.policy_version - first, token_versions=shifted)

    def _group(self, reference: GroupRef) -> list[Rollout]:
        if self._elsewhere is not None and reference.batch in self._elsewhere:
            self._stored[reference.batch] = self._elsewhere.collect(reference.batch)
        stored = self._stored.get(reference.batch)
        if stored is None:
            raise self._store.missing(reference.batch)
        if reference.batch not in self._cache:
            while len(self._cache) >= CACHED_SHARDS:
                self._cache.pop(next(iter(self._cache)))
            self._cache[reference.batch] = [self._counted(row) for row in self._store.read(stored).rollouts]
        group = [row for row in self._cache[reference.batch] if row.group == reference.group]
        if not group:
            raise DataError(f"{stored.path}: it has no group {reference.group}")
        return group


def _lengths(rows: Sequence[Rollout]) -> list[list[int]]:
    return [[sampled_length(row) for row in group] for group in in_groups(rows)]
