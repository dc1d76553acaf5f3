"""Who makes which launch batch: leases without a server, and at most one shard a batch whatever dies, hangs or wakes up late.

claims/b000123.1/      the first claim of batch 123: who holds it; a second claim, after the first holder's death, is .2
claims/b000123.done/   the batch is decided: which shard it has, for ever

A lease only saves work. What keeps two shards of one batch apart is the decision: a finished shard lies in a folder that is
renamed to `.done`, which succeeds once, and only then moves to `rollouts/`. If its writer dies in between, anyone moves it.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gmc.errors import DataError
from gmc.live import exclusive
from gmc.live.frontier import DECISION, Frontier, claim_path, decision_path, move_shard
from gmc.live.heartbeats import Watcher
from gmc.store.logs import UsedBatches
from gmc.store.run_directory import ROLLOUT_NAME, RunDirectory, rollout_name
from gmc.store.temporary import remove

CLAIM = re.compile(r"b(\d{6,})\.(\d+)")


@dataclass(frozen=True)
class Claim:
    """Batch `batch` is this process's to make, in its `attempt`-th claim."""

    batch: int
    attempt: int


@dataclass(frozen=True)
class Ledger:
    """What the folders say: batches with a shard, decided batches, and the newest claim and its holder of every other."""

    shards: frozenset[int]
    decided: frozenset[int]
    claimed: dict[int, tuple[int, str]]

    @property
    def launched(self) -> int:
        """Batches that are made or being made."""
        return len(self.shards | self.decided | self.claimed.keys())


class Claims:
    """The claims of one run, as the process `name` sees and makes them."""

    def __init__(self, run: RunDirectory, name: str, watcher: Watcher) -> None:
        self._run = run
        self._name = name
        self._watcher = watcher
        self._frontier = Frontier(run)

    def next_free(self, limit: int, used: UsedBatches | None = None) -> Claim | None:
        """The lowest batch below `limit` that nobody has made and no living process is making, or None. Claims nothing.

        `limit` bounds what is launched without a race: batch numbers are given out once, so at most `limit` batches exist.
        used: batches that training has used, which are not looked at.
        """
        used = used or UsedBatches()
        alive, fresh = self._watcher.recent(), False
        for batch in range(used.low, limit):
            if batch in used or self._frontier.is_made(batch):
                continue
            attempt, holder = self._frontier.newest_claim(batch)
            if holder and holder not in alive and not fresh:
                alive, fresh = self._watcher.look(), True  # it may be new since
            if holder not in alive:
                return Claim(batch, attempt + 1)
        return None

    def take(self, claim: Claim) -> bool:
        """Make the claim; False when another process was faster or the batch is done meanwhile.

        Raises `GmcError` when the folder holds another run by now.
        """
        self._run.require_same()
        if not exclusive.record_once(claim_path(self._run, claim.batch, claim.attempt), {"follower": self._name}):
            return False
        if self._frontier.is_made(claim.batch):
            self.release(claim)
            return False
        return True

    def publish(self, claim: Claim, version: int, write: Callable[[Path], None]) -> bool:
        """Have `write` write the shard, decide the batch with it and move it to `rollouts/`.

        False when the batch was decided by another process, which took this one for dead; then nothing is left of this shard.
        Raises `GmcError` when the folder holds another run by now.
        """
        target = decision_path(self._run, claim.batch)
        name = rollout_name(claim.batch, version)
        staged = exclusive.stage(target)
        try:
            write(staged / name)
            self._run.require_same()  # a batch takes long, and the run may have been started anew meanwhile
        except BaseException:
            remove(staged)
            raise
        won = exclusive.decide(target, staged, {"follower": self._name, "shard": name})
        if won:
            move_shard(self._run, claim.batch)
        self.release(claim)
        return won

    def release(self, claim: Claim) -> None:
        """Give the claim back, unmade; once the batch is decided this only tidies up."""
        exclusive.forget(claim_path(self._run, claim.batch, claim.attempt))


def read_ledger(run: RunDirectory) -> Ledger:
    """What the run's folders say now, all of them: for starts and status, not for polls, which go by `Frontier`.

    Claims that vanish while they are read are left out.
    """
    shards = {int(match[1]) for name in _names(run.rollouts) if (match := ROLLOUT_NAME.fullmatch(name))}
    decided: set[int] = set()
    attempts: dict[int, int] = {}
    for name in _names(run.claims):
        if match := DECISION.fullmatch(name):
            decided.add(int(match[1]))
        elif match := CLAIM.fullmatch(name):
            batch, attempt = int(match[1]), int(match[2])
            attempts[batch] = max(attempt, attempts.get(batch, 0))
    claimed = {}
    for batch in attempts.keys() - shards - decided:
        path = claim_path(run, batch, attempts[batch])
        try:
            claimed[batch] = (attempts[batch], exclusive.read_record(path).follower)
        except DataError:
            if path.exists():
                raise
    return Ledger(frozenset(shards), frozenset(decided), claimed)


def finish_decided(run: RunDirectory, ledger: Ledger) -> list[int]:
    """Move the shards of decided batches whose writers died before they could; returns the batches still without one."""
    missing = sorted(ledger.decided - ledger.shards)
    for batch in missing:
        move_shard(run, batch)
    return missing and sorted(set(missing) - read_ledger(run).shards)


def reopen_lost(run: RunDirectory) -> list[int]:
    """Let batches be made again that are decided but whose shard is nowhere; returns them. For the trainer, on opening a run.

    Their shards were set aside or removed by hand.
    """
    lost = finish_decided(run, read_ledger(run))
    for batch in lost:
        exclusive.forget(decision_path(run, batch))
    return lost


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []
