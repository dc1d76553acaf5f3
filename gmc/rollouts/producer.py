"""Who makes the batches that a delay model launches: this process, at once, or others while training goes on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gmc.delays.base import GroupTimes
from gmc.ranks import Ranks
from gmc.rollouts.maker import RolloutMaker
from gmc.rollouts.resampling import Made
from gmc.rollouts.source import Progress
from gmc.store.shards.groups import lengths_of
from gmc.store.shards.reader import Launch
from gmc.store.shards.rollout import ShardMetadata
from gmc.store.shards.store import RolloutStore, StoredShard
from gmc.store.shards.writer import write_shard


class BatchProducer(Protocol):
    """A batch is started, launched and collected, in that order, on every rank alike; rank 0 alone writes shards.

    unknown: what is said of a batch that is not made yet; None where a batch is made before it is launched.
    """

    unknown: Launch | None = None

    def start(self, batch: int, version: int, progress: Progress | None = None) -> None:
        """Have a batch made by the policy of now, which is `version`; a second call for it does nothing."""
        ...

    def launch(self, batch: int) -> Launch:
        """What a batch that was started came to, when it is made."""
        ...

    def launched(self, batch: int, version: int, times_P: Sequence[GroupTimes]) -> None:
        """A batch that was started is launched, with these times of its groups."""
        ...

    def collect(self, batch: int) -> StoredShard:
        """Wait for a launched batch and write its shard into the run."""
        ...

    def __contains__(self, batch: object) -> bool:
        """Whether a batch is launched and not collected."""
        ...

    def of_later_versions(self) -> list[int]:
        """Batches not collected that the initial policy cannot make: a resumed run could not make them again."""
        return []


class Here(BatchProducer):
    """This process makes each batch when it is started."""

    def __init__(self, maker: RolloutMaker, store: RolloutStore, ranks: Ranks) -> None:
        self._maker, self._store, self._ranks = maker, store, ranks
        self._made: dict[int, Made] = {}
        self._launched: dict[int, tuple[int, Sequence[GroupTimes]]] = {}
        self._metadata: tuple[int, ShardMetadata] | None = None

    def start(self, batch: int, version: int, progress: Progress | None = None) -> None:
        if batch not in self._made:
            self._made[batch] = self._maker.make(batch, version, progress)

    def launch(self, batch: int) -> Launch:
        made = self._made[batch]
        return Launch(lengths_of(made.rows), made.set_aside)

    def launched(self, batch: int, version: int, times_P: Sequence[GroupTimes]) -> None:
        self._launched[batch] = (version, times_P)

    def __contains__(self, batch: object) -> bool:
        return batch in self._launched

    def collect(self, batch: int) -> StoredShard:
        version, times_P = self._launched.pop(batch)
        made = self._made.pop(batch)
        path = self._store.path_for(batch, version)
        self._ranks.from_rank_0(lambda: self._write(path, version, made, times_P))
        return StoredShard(batch, version, path)

    def _write(self, path: Path, version: int, made: Made, times_P: Sequence[GroupTimes]) -> None:
        timed = [replace(row, **times_P[row.group]._asdict()) for row in made.rows]
        if self._metadata is None or self._metadata[0] != version:
            self._metadata = (version, self._maker.metadata(version))
        write_shard(path, timed, replace(self._metadata[1], set_aside=made.set_aside))
