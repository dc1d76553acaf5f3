"""Launch batches that other processes make while training goes on: what is in work, and how it becomes shards of the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from gmc.delays.base import GroupTimes
from gmc.ranks import Ranks
from gmc.rollouts.producer import BatchProducer
from gmc.rollouts.source import Progress, Samplers
from gmc.store.shards.groups import lengths_of
from gmc.store.shards.reader import Launch, Shard
from gmc.store.shards.store import RolloutStore, StoredShard
from gmc.store.shards.writer import write_shard


class Elsewhere(BatchProducer):
    """Every rank keeps the same record of what is in work; rank 0 alone asks `samplers`.

    weights: a copy of what training changes now, called on every rank. prompts, group_size: P and G of every batch.
    """

    def __init__(
        self,
        samplers: Samplers,
        store: RolloutStore,
        ranks: Ranks,
        weights: Callable[[], Mapping[str, Tensor]],
        *,
        prompts: int,
        group_size: int,
    ) -> None:
        self._samplers, self._store, self._ranks, self._weights = samplers, store, ranks, weights
        self._given = 0
        self.unknown = Launch([[0] * group_size for _ in range(prompts)])
        self._in_work: dict[int, tuple[int, Sequence[GroupTimes]]] = {}
        self._made: dict[int, Shard] = {}

    def __contains__(self, batch: object) -> bool:
        return batch in self._in_work

    def start(self, batch: int, version: int, progress: Progress | None = None) -> None:
        """Waits while too many versions are in work. progress: never called, because nothing is finished here and now."""
        weights = None if version == self._given else self._weights()
        self._given = version
        self._ranks.from_rank_0(lambda: self._samplers.start(batch, version, weights))

    def launch(self, batch: int) -> Launch:
        return self._ranks.from_rank_0(lambda: launch_of(self._shard(batch)))

    def launched(self, batch: int, version: int, times_P: Sequence[GroupTimes]) -> None:
        self._in_work[batch] = (version, times_P)

    def collect(self, batch: int) -> StoredShard:
        version, times_P = self._in_work.pop(batch)
        stored = StoredShard(batch, version, self._store.path_for(batch, version))

        def write() -> None:
            shard = self._shard(batch)
            timed = [replace(row, **times_P[row.group]._asdict()) for row in shard.rollouts]
            write_shard(stored.path, timed, shard.metadata)
            del self._made[batch]

        self._ranks.from_rank_0(write)
        return stored

    def of_later_versions(self) -> list[int]:
        return [batch for batch, (version, _) in self._in_work.items() if version]

    def _shard(self, batch: int) -> Shard:
        if batch not in self._made:
            self._made[batch] = self._samplers.shard(batch)
        return self._made[batch]


def launch_of(shard: Shard) -> Launch:
    """What a shard says of its launch."""
    return Launch(lengths_of(shard.rollouts), shard.metadata.set_aside)
