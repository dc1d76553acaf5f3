"""The queue between generation and training: shards on disk, and a delay model that says which is launched and used when."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gmc.delays.base import DelayModel, GroupRef, GroupTimes
from gmc.errors import DataError, GmcError, UsageError
from gmc.ranks import ALONE, Ranks
from gmc.rollouts.maker import RolloutMaker
from gmc.store.shards.reader import read_lengths
from gmc.store.shards.rollout import Rollout, ShardMetadata
from gmc.store.shards.store import RolloutStore, StoredShard
from gmc.store.shards.writer import write_shard

CACHED_SHARDS = 16

Progress = Callable[[int], None]


@dataclass
class _Lengths:
    total: int = 0
    count: int = 0

    def add(self, lengths: Sequence[int]) -> None:
        self.total += sum(lengths)
        self.count += len(lengths)


class RolloutQueue:
    """Launches what a delay model asks for and hands out the groups it names. Every rollout passes through a shard on disk.

    maker: None for `--delay shards`, which generates nothing. spec: the delay as the user wrote it.
    stopping: polled between batches, so that a long filling of the queue can be interrupted. ranks: the processes that train
    together; each keeps the same queue, the lead alone writes shards. bring: brings in a batch of version 0 from
    elsewhere, when it is there.
    """

    def __init__(
        self,
        store: RolloutStore,
        delays: DelayModel,
        maker: RolloutMaker | None,
        *,
        spec: str,
        stopping: Callable[[], bool] = lambda: False,
        ranks: Ranks = ALONE,
        bring: Callable[[int], StoredShard | None] = lambda batch: None,
    ) -> None:
        self._store = store
        self._delays = delays
        self._maker = maker
        self._spec = spec
        self._stopping = stopping
        self._ranks = ranks
        self._bring = bring
        self._metadata: tuple[int, ShardMetadata] | None = None
        self._stored: dict[int, StoredShard] = {stored.batch: stored for stored in store.list()}
        self._launched: set[int] = set()
        self._generated, self._trained = _Lengths(), _Lengths()
        self._waiting_lengths: dict[GroupRef, list[int]] = {}
        self._unwritten: dict[int, list[Rollout]] = {}
        self._cache: dict[int, list[Rollout]] = {}

    @property
    def waiting(self) -> int:
        """Groups launched and not yet taken."""
        return self._delays.waiting

    @property
    def to_fill(self) -> int | None:
        """Batches to be generated before the first update, those on disk left out; None when that is not known ahead."""
        first = self._delays.first_launches
        return None if first is None else sum(batch not in self._stored for batch in range(first))

    @property
    def calibrated_clock(self) -> float | None:
        """What a self-calibrating delay model found; it goes into the checkpoint, so that a longer horizon keeps it."""
        return self._delays.calibrated_clock

    def replay(self, used: Sequence[Sequence[GroupRef]], horizon: int) -> None:
        """Bring the delay model to where it stood after the updates in `used`, from the shards on disk.

        horizon: the planned updates of the run so far; batches beyond it may be missing, because they were never launched.
        Raises `DataError` when a shard is missing or the replay disagrees with `used`.
        """
        self._calibrate()
        for update, groups in enumerate(used):
            self._relaunch(update, horizon)
            if self._take(update) != list(groups):
                raise self._disagreement(update)

    def launch(self, update: int, progress: Progress | None = None) -> bool:
        """Generate what policy version `update` owes before its update; False when interrupted by `stopping`."""
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
        self._refuse_surplus(update)
        return True

    def take(self, update: int) -> list[list[Rollout]]:
        """The groups that `update` trains on, read from their shards."""
        return [self._group(reference) for reference in self._take(update)]

    def length_metrics(self) -> dict[str, float]:
        """Mean response length (tokens) of all that was generated and of all that was trained on: a gap is a length bias.

        Empty when nothing was generated here (`--delay shards`).
        """
        if not self._generated.count:
            return {}
        return {
            "response/generated_length_mean_so_far": self._generated.total / self._generated.count,
            "response/trained_length_mean_so_far": self._trained.total / max(1, self._trained.count),
        }

    def _take(self, update: int) -> list[GroupRef]:
        taken = self._delays.take(update)
        for reference in taken:
            self._trained.add(self._waiting_lengths.pop(reference, []))
        return taken

    def _disagreement(self, update: int) -> DataError:
        return DataError(
            f"used.jsonl, update {update}: --delay {self._spec} launches or takes other groups than the run did; resume with "
            "the delay, seed and shards that it was started with"
        )

    def _relaunch(self, update: int, horizon: int) -> None:
        while (batch := self._delays.next_launch(update)) is not None:
            stored = self._stored.get(batch)
            if stored is None:
                if batch >= horizon:
                    return  # the horizon was extended later: this batch is still to be launched, by a later version
                raise DataError(f"{self._store.path_for(batch, update)}: the shard of batch {batch} is missing; restore it")
            if stored.version > update:
                return
            if stored.version < update:
                raise self._disagreement(update)
            self._tell(batch, update, read_lengths(stored.path))

    def _tell(self, batch: int, version: int, lengths_PG: list[list[int]]) -> list[GroupTimes]:
        self._launched.add(batch)
        for group, lengths in enumerate(lengths_PG):
            self._generated.add(lengths)
            self._waiting_lengths[GroupRef(batch, group)] = lengths
        return self._delays.launched(batch, version, lengths_PG)

    def _find(self, batch: int, version: int) -> StoredShard | None:
        if batch not in self._stored and version == 0:
            brought = self._ranks.from_lead(lambda: self._bring(batch))
            if brought is not None:
                self._stored[batch] = brought
        return self._stored.get(batch)

    def _accept(self, stored: StoredShard, update: int) -> None:
        if stored.version != update:
            raise DataError(
                f"{stored.path}: --delay {self._spec} wants batch {stored.batch} from policy version {update}, not "
                f"{stored.version}; train on what exists with --delay shards, or use another run directory"
            )
        self._tell(stored.batch, update, read_lengths(stored.path))

    def _generate(self, batch: int, update: int, progress: Progress | None) -> None:
        rows = self._unwritten.pop(batch, None) or self._make(batch, update, progress)
        times_P = self._tell(batch, update, self._lengths(rows))
        self._write(batch, update, rows, times_P)

    def _make(self, batch: int, update: int, progress: Progress | None) -> list[Rollout]:
        if self._maker is None:
            raise GmcError(f"--delay {self._spec} generates nothing, and batch {batch} does not exist")
        return self._maker.make(batch, update, progress)

    def _write(self, batch: int, version: int, rows: Sequence[Rollout], times_P: Sequence[GroupTimes]) -> None:
        path = self._store.path_for(batch, version)
        self._ranks.from_lead(lambda: self._write_shard(path, version, rows, times_P))
        self._stored[batch] = StoredShard(batch, version, path)

    def _write_shard(self, path: Path, version: int, rows: Sequence[Rollout], times_P: Sequence[GroupTimes]) -> None:
        assert self._maker is not None
        timed = [replace(row, launched_at=times_P[row.group].launched_at, ready_at=times_P[row.group].ready_at) for row in rows]
        if self._metadata is None or self._metadata[0] != version:
            self._metadata = (version, self._maker.metadata())
        write_shard(path, timed, self._metadata[1])

    def _calibrate(self, progress: Progress | None = None) -> None:
        if not self._delays.calibration_batches:
            return
        lengths_BPG = []
        for batch in range(self._delays.calibration_batches):
            stored = self._find(batch, 0)
            if stored is not None:
                lengths_BPG.append(read_lengths(stored.path))
            else:
                self._unwritten[batch] = self._make(batch, 0, progress)
                lengths_BPG.append(self._lengths(self._unwritten[batch]))
        self._delays.calibrate(lengths_BPG)

    def _lengths(self, rows: Sequence[Rollout]) -> list[list[int]]:
        lengths_PG: list[list[int]] = [[] for _ in range(rows[-1].group + 1)]
        for row in rows:
            lengths_PG[row.group].append(len(row.response_token_ids))
        return lengths_PG

    def _refuse_surplus(self, update: int) -> None:
        if self._maker is None:
            return
        surplus = [batch for batch in self._stored if batch not in self._launched]
        if surplus:
            raise UsageError(
                f"{self._store.directory}: {len(surplus)} rollout batches (from number {surplus[0]}) are more than --delay "
                f"{self._spec} has launched by update {update} (a fixed delay D over N updates starts from D + 1 or N batches, "
                f"whichever is less). Bring as many as are needed into a new run with --run NEW --rollouts "
                f"{self._store.directory.parent}, use a longer delay, or train on all of them with --delay shards"
            )

    def _group(self, reference: GroupRef) -> list[Rollout]:
        stored = self._stored.get(reference.batch)
        if stored is None:
            raise DataError(f"{self._store.directory}: the shard of batch {reference.batch} is missing; restore it")
        if reference.batch not in self._cache:
            while len(self._cache) >= CACHED_SHARDS:
                self._cache.pop(next(iter(self._cache)))
            self._cache[reference.batch] = self._store.read(stored).rollouts
        group = [row for row in self._cache[reference.batch] if row.group == reference.group]
        if not group:
            raise DataError(f"{stored.path}: it has no group {reference.group}")
        return group
