"""Groups of a run's shards, read when an update takes them."""

from dataclasses import replace

from gmc.errors import DataError
from gmc.store.shards.groups import in_groups
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.store import RolloutStore, StoredShard

CACHED_SHARDS = 16


class GroupReader:
    """Keeps the rows of the shards it read last: an update takes single groups of several, and the next ones take the rest.

    start_version: which version of the shards the run's initial weights are, None where that is not known. Rows are handed out
    with versions counted from it.
    """

    def __init__(self, store: RolloutStore, start_version: int | None = 0) -> None:
        self._store, self._start_version = store, start_version
        self._cache: dict[int, list[list[Rollout]]] = {}

    def group(self, stored: StoredShard, group: int) -> list[Rollout]:
        """The rows of one group. Raises `DataError` for a shard that is damaged or has no such group."""
        if stored.batch not in self._cache:
            while len(self._cache) >= CACHED_SHARDS:
                self._cache.pop(next(iter(self._cache)))
            self._cache[stored.batch] = in_groups([self._counted(row) for row in self._store.read(stored).rollouts])
        groups_PG = self._cache[stored.batch]
        if group >= len(groups_PG):
            raise DataError(f"{stored.path}: it has no group {group}")
        return groups_PG[group]

    def _counted(self, row: Rollout) -> Rollout:
        """The row with versions counted from this run's initial weights."""
        first, own = self._start_version, row.token_versions
        if not first:  # they count from it already, or nobody knows
            return row
        shifted = None if own is None else [version - first for version in own]
        return replace(row, policy_version=row.policy_version - first, token_versions=shifted)
