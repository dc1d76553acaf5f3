"""A fixed delay: D batches, first in, first out, between generation and training."""

from collections.abc import Sequence

from gmc.delays.base import Arguments, DelayContext, DelayModel, GroupRef, GroupTimes


class FixedDelay(DelayModel):
    """Update n trains on batch n, which policy version max(0, n − D) generated (arXiv 2610.01896, fixed-delay protocol).

    delay: D, in updates; prompts: P, groups a batch; updates: the planned number, beyond which nothing is launched.
    Version 0 generates the first D + 1 batches (how the paper fills its queue is not published).
    """

    name = "fixed"
    summary = "first in, first out: update n takes batch n, which version max(0, n − D) generated"
    usage = "D"
    examples = ("0", "256")

    def __init__(self, delay: int, *, prompts: int, updates: int) -> None:
        self._delay = delay
        self._prompts = prompts
        self._updates = updates
        self._launched = 0
        self._taken = 0

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "FixedDelay":
        (delay,) = arguments.expect(1)
        return cls(arguments.whole(delay, "the delay"), prompts=context.prompts, updates=context.updates)

    @property
    def first_launches(self) -> int:
        return min(self._delay + 1, self._updates)

    def next_launch(self, update: int) -> int | None:
        wanted = min(update + self._delay + 1, self._updates)
        return self._launched if self._launched < wanted else None

    def launched(self, batch: int, policy_version: int, lengths_PG: Sequence[Sequence[int]]) -> list[GroupTimes]:
        if batch != self._launched:
            raise ValueError(f"batch {self._launched} is the next to be launched, not {batch}")
        self._launched += 1
        return [GroupTimes(None, None)] * len(lengths_PG)

    def take(self, update: int) -> list[GroupRef]:
        if update != self._taken or update >= self._launched:
            raise ValueError(
                f"update {self._taken} is next and {self._launched} batches are launched: cannot take for {update}"
            )
        self._taken += 1
        return [GroupRef(update, group) for group in range(self._prompts)]

    @property
    def waiting(self) -> int:
        return (self._launched - self._taken) * self._prompts
