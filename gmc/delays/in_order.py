"""First in, first out: batches are trained on whole and in order, and what differs is the version that generated each."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence

from gmc.delays.base import DelayModel, GroupRef, GroupTimes


class InOrderDelay(DelayModel):
    """Update n takes batch ⌊n / uses⌋ whole, from the version that a subclass names; a batch serves one update by default.

    prompts: P, groups a batch; updates: the planned number, beyond which nothing is launched.
    """

    reads_lengths = False

    def __init__(self, *, prompts: int, updates: int) -> None:
        self._prompts = prompts
        self._updates = updates
        self._launched = 0
        self._taken = 0

    @abstractmethod
    def version_of(self, batch: int) -> int:
        """The version that generates `batch`: not later than its first update, and never falling from batch to batch."""

    @property
    def first_launches(self) -> int:
        return bisect_right(range(self._updates), 0, key=self.version_of)

    @property
    def version_0_updates(self) -> int:
        return min(self._updates, self.first_launches * self.uses)

    def next_launch(self, update: int) -> int | None:
        due = self._launched < self._updates and self.version_of(self._launched) <= update
        return self._launched if due else None

    def launched(self, batch: int, policy_version: int, lengths_PG: Sequence[Sequence[int]]) -> list[GroupTimes]:
        if batch != self._launched:
            raise ValueError(f"batch {self._launched} is the next to be launched, not {batch}")
        self._launched += 1
        return [GroupTimes(None, None)] * len(lengths_PG)

    def take(self, update: int) -> list[GroupRef]:
        batch = update // self.uses
        if update != self._taken or batch >= self._launched:
            raise ValueError(
                f"update {self._taken} is next and {self._launched} batches are launched: cannot take for {update}"
            )
        self._taken += 1
        return [GroupRef(batch, group) for group in range(self._prompts)]

    @property
    def waiting(self) -> int:
        return (self._launched * self.uses - self._taken) * self._prompts
