"""The batches that training has not used yet, looked at one by one: the cost of a look does not grow with the finished ones.

Every batch below `UsedBatches.low` is used, and numbers are given out in order, so what is alive lies in a short window above.
Whoever finishes a batch in live mode leaves its decision, which names its shard (gmc/live/claims.py). Shards without one were
there before the run went live; one listing at the first look finds them.
"""

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from gmc.errors import DataError
from gmc.live import exclusive
from gmc.store.files import fsync_directory, make_directory
from gmc.store.logs import UsedBatches
from gmc.store.run_directory import ROLLOUT_NAME, RunDirectory
from gmc.store.shards.store import StoredShard

DECISION = re.compile(r"b(\d{6,})\.done")

GAP = 16
"""So many batches in a row that nobody has claimed or made: above them there are none. A batch set aside leaves such a hole."""

ATTEMPTS_APART = 2
"""A look goes on past one claim that is missing: its holder woke up late, failed and gave it back."""


def decision_path(run: RunDirectory, batch: int) -> Path:
    """Where the decision of a batch lies, once it has one."""
    return run.claims / f"b{batch:06d}.done"


def claim_path(run: RunDirectory, batch: int, attempt: int) -> Path:
    """Where the `attempt`-th claim of a batch lies."""
    return run.claims / f"b{batch:06d}.{attempt}"


class Frontier:
    """What one process knows of the batches of a live run. Make it when the shards from before the run went live are there."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._end = 0

    @cached_property
    def _first_look(self) -> tuple[dict[int, StoredShard], int]:
        """The shards that no decision names, by batch, and one more than the highest batch: the only listing there is."""
        shards = [shard for name in _names(self._run.rollouts) if (shard := self._shard(name)) is not None]
        decided = {int(match[1]) for name in _names(self._run.claims) if (match := DECISION.fullmatch(name))}
        undecided = {shard.batch: shard for shard in shards if shard.batch not in decided}
        return undecided, 1 + max([*decided, *undecided], default=-1)

    def _before(self, batch: int) -> StoredShard | None:
        """The shard that the batch has had since before the run went live."""
        stored = self._first_look[0].get(batch)
        return stored if stored is not None and stored.path.exists() else None

    def is_made(self, batch: int) -> bool:
        """Whether the batch has its shard. A decided one whose writer died is moved to `rollouts/`."""
        return self._finish(batch) or self._before(batch) is not None

    def find(self, batch: int) -> StoredShard | None:
        """The batch's shard, or None. Raises `DataError` for a decision that names none."""
        if not self._finish(batch):
            return self._before(batch)
        path = decision_path(self._run, batch)
        record = exclusive.read_record(path)
        stored = self._shard(record.shard)
        if stored is None or stored.batch != batch:
            raise DataError(f"{path / exclusive.RECORD}: names no shard of batch {batch}; remove {path} and resume the trainer")
        return stored if stored.path.exists() else None

    def newest_claim(self, batch: int) -> tuple[int, str]:
        """The number and the holder of the newest claim of a batch; 0 and nobody when there is none."""
        newest = self._newest_attempt(batch)
        if not newest:
            return 0, ""
        path = claim_path(self._run, batch, newest)
        try:
            return newest, exclusive.read_record(path).follower
        except DataError:
            if path.exists():
                raise
            return newest, ""  # given back meanwhile

    def unused(self, used: UsedBatches) -> Iterator[StoredShard]:
        """The complete batches not in `used`, in the order of their numbers."""
        batch, quiet = used.low, 0
        while batch < max(self._end, self._first_look[1]) or quiet < GAP:
            stored = None if batch in used else self.find(batch)
            if stored is not None:
                self._end = max(self._end, batch + 1)
                yield stored
            known = batch in used or stored is not None or self._newest_attempt(batch) > 0
            quiet = 0 if known else quiet + 1
            batch += 1

    def _newest_attempt(self, batch: int) -> int:
        newest, attempt = 0, 1
        while attempt <= newest + ATTEMPTS_APART:
            if claim_path(self._run, batch, attempt).exists():
                newest = attempt
            attempt += 1
        return newest

    def _finish(self, batch: int) -> bool:
        """Whether the batch is decided; its shard is then moved, should it still lie with the decision."""
        try:
            names = os.listdir(decision_path(self._run, batch))
        except FileNotFoundError:
            return False
        if any(name.endswith(".parquet") for name in names):
            move_shard(self._run, batch)
        return True

    def _shard(self, name: str) -> StoredShard | None:
        match = ROLLOUT_NAME.fullmatch(name)
        return None if match is None else StoredShard(int(match[1]), int(match[2]), self._run.rollouts / name)


def move_shard(run: RunDirectory, batch: int) -> None:
    """Move a decided shard to `rollouts/`. Any number of processes may do this at once: the others find nothing."""
    for staged in decision_path(run, batch).glob("*.parquet"):
        make_directory(run.rollouts)
        try:
            os.replace(staged, run.rollouts / staged.name)
        except FileNotFoundError:
            continue
        fsync_directory(run.rollouts)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []
