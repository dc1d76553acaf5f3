"""What a run on disk offers a simulation: its response lengths, and the schedule that it followed or would follow."""

from pathlib import Path

from gmc.delays.base import ShardContents
from gmc.delays.schedule import ScheduleRow, schedule_of_run
from gmc.delays.shards import ShardsDelay
from gmc.errors import DataError, UsageError
from gmc.simulator.lengths import RecordedLengths, lengths_of_shards
from gmc.store.logs import read_used
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_lengths
from gmc.store.shards.store import RolloutStore


class RecordedRun:
    """The shards of a run, or of a bare folder of shards."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise UsageError(f"{path}: no such run directory; gmc rollout makes one")
        self._path = path
        self._folder = RunDirectory.rollouts_of(path)
        self._stored = RolloutStore(self._folder, "").list()
        self._lengths_BPG = [read_lengths(stored.path) for stored in self._stored]

    def lengths(self, *, prompts: int | None, group_size: int | None) -> RecordedLengths:
        """The lengths of all shards in batch order; `prompts` and `group_size` as in `lengths_of_shards`."""
        names = [str(stored.path) for stored in self._stored]
        named = zip(names, self._lengths_BPG, strict=True)
        return lengths_of_shards(named, str(self._folder), prompts=prompts, group_size=group_size)

    def existing_schedule(self, updates: int | None) -> list[ScheduleRow]:
        """What `--delay shards` would do with these shards; by default for as many updates as they serve."""
        self._require_all_batches()
        prompts = len(self._lengths_BPG[0])
        contents = [
            ShardContents(stored.batch, stored.version, len(lengths_PG))
            for stored, lengths_PG in zip(self._stored, self._lengths_BPG, strict=True)
        ]
        updates = updates or sum(shard.groups for shard in contents) // prompts
        delays = ShardsDelay(contents, prompts=prompts, updates=updates)
        return schedule_of_run([delays.take(update) for update in range(updates)], self._versions())

    def followed_schedule(self) -> list[ScheduleRow]:
        """What the run's updates really used. Raises `UsageError` when it has not trained."""
        self._require_all_batches()
        used = read_used(RunDirectory.open(self._path).used)
        if not used:
            raise UsageError(f"--delay recorded: {self._path} has not trained yet; train it, or give another delay")
        return schedule_of_run(used, self._versions())

    def _versions(self) -> dict[int, int]:
        return {stored.batch: stored.version for stored in self._stored}

    def _require_all_batches(self) -> None:
        for number, stored in enumerate(self._stored):
            if stored.batch != number:
                raise DataError(f"{self._folder}: the shard of batch {number} is missing; restore it")
        if not self._stored:
            raise DataError(f"{self._folder}: no rollouts; run gmc rollout first")
