"""Training on rollouts that exist already: nothing is generated, groups are used in launch order at their true age."""

from collections.abc import Sequence
from typing import NamedTuple

from gmc.delays.base import DelayModel, GroupRef, GroupTimes
from gmc.errors import UsageError


class ShardContents(NamedTuple):
    """What a delay model needs to know of a shard on disk: its launch batch, its policy version, its number of groups."""

    batch: int
    policy_version: int
    groups: int


class ShardsDelay(DelayModel):
    """Update n takes the next P groups of the shards, by batch and then by group; a batch may serve several updates.

    Raises `UsageError` when the shards hold fewer groups than `updates` need, or a rollout of a later version than the
    update that would use it.
    """

    def __init__(self, shards: Sequence[ShardContents], *, prompts: int, updates: int) -> None:
        ordered = sorted(shards)
        self._queue = [GroupRef(shard.batch, group) for shard in ordered for group in range(shard.groups)]
        self._prompts = prompts
        self._taken = 0
        enough_for = len(self._queue) // prompts
        if enough_for < updates:
            raise UsageError(
                f"--delay shards: {updates} updates of {prompts} groups need {prompts * updates} groups, and the "
                f"{len(ordered)} shards hold {len(self._queue)}; lower --updates to {enough_for} or run gmc rollout"
            )
        first_group = 0
        for shard in ordered:
            update = first_group // prompts
            if update < updates and shard.policy_version > update:
                raise UsageError(
                    f"--delay shards: update {update} would use batch {shard.batch}, which the later policy version "
                    f"{shard.policy_version} generated; start from version {shard.policy_version} or leave that shard out"
                )
            first_group += shard.groups

    def next_launch(self, update: int) -> int | None:
        return None

    def launched(self, batch: int, policy_version: int, lengths_PG: Sequence[Sequence[int]]) -> list[GroupTimes]:
        raise ValueError("--delay shards generates nothing")

    def take(self, update: int) -> list[GroupRef]:
        if update * self._prompts != self._taken:
            raise ValueError(f"update {self._taken // self._prompts} is next, not {update}")
        self._taken += self._prompts
        return self._queue[self._taken - self._prompts : self._taken]

    @property
    def waiting(self) -> int:
        return len(self._queue) - self._taken
