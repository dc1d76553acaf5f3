"""Training on rollouts that exist already: nothing is generated, groups are used in launch order at their true age."""

from collections.abc import Sequence

from gmc.delays.base import Arguments, DelayContext, DelayModel, GroupRef, GroupTimes, ShardContents
from gmc.errors import UsageError


class ShardsDelay(DelayModel):
    """Update n takes the next P groups of the shards, by batch and then by group; a batch may serve several updates.

    Raises `UsageError` when the shards hold fewer groups than `updates` need, or a rollout of a later version than the
    update that would use it.
    """

    name = "shards"
    summary = "generates nothing: takes the groups on disk by batch and group, at their true age"
    usage = "shards"
    examples = ("shards",)
    generates = False
    needs_existing_shards = True

    def __init__(self, shards: Sequence[ShardContents], *, prompts: int, updates: int) -> None:
        ordered = sorted(shards)
        self._groups = [GroupRef(shard.batch, group) for shard in ordered for group in range(shard.groups)]
        self._prompts = prompts
        self._taken = 0
        enough_for = len(self._groups) // prompts
        if enough_for < updates:
            raise UsageError(
                f"--delay shards: {updates} updates of {prompts} groups need {prompts * updates} groups, and the "
                f"{len(ordered)} shards hold {len(self._groups)}; lower --updates to {enough_for} or run gmc rollout"
            )
        first_group = 0
        for shard in ordered:
            update = first_group // prompts
            if update < updates and shard.policy_version > update:
                raise UsageError(
                    f"--delay shards: update {update} would use batch {shard.batch}, which a later policy generated "
                    f"({shard.policy_version - update} ahead); say which version the model is by "
                    "--start-version, or leave that shard out"
                )
            first_group += shard.groups

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "ShardsDelay":
        arguments.expect(0)
        return cls(context.shards, prompts=context.prompts, updates=context.updates)

    @classmethod
    def check(cls, arguments: Arguments, context: DelayContext) -> None:
        arguments.expect(0)

    @classmethod
    def horizon(cls, arguments: Arguments, context: DelayContext) -> int:
        return sum(shard.groups for shard in context.shards) // context.prompts

    def next_launch(self, update: int) -> int | None:
        return None

    def launched(self, batch: int, policy_version: int, lengths_PG: Sequence[Sequence[int]]) -> list[GroupTimes]:
        raise ValueError("--delay shards generates nothing")

    def take(self, update: int) -> list[GroupRef]:
        if update * self._prompts != self._taken:
            raise ValueError(f"update {self._taken // self._prompts} is next, not {update}")
        self._taken += self._prompts
        return self._groups[self._taken - self._prompts : self._taken]

    @property
    def waiting(self) -> int:
        return len(self._groups) - self._taken
