"""The account of what a run launched and trained on: groups that wait, response lengths, groups set aside."""

from collections.abc import Iterable
from dataclasses import dataclass

from gmc.delays.base import GroupRef
from gmc.rollouts.lengths import LengthAccount
from gmc.rollouts.resampling import SetAsideAccount
from gmc.store.shards.reader import Launch


@dataclass
class _Waiting:
    """A group launched here. uses: how many are still to come; lengths of its responses, in tokens."""

    lengths: list[int]
    uses: int


class LaunchAccount:
    """uses: in how many updates each group is used.

    batches: those launched, by number.
    """

    def __init__(self, uses: int) -> None:
        self._uses = uses
        self.batches: set[int] = set()
        self._generated, self._trained = LengthAccount(), LengthAccount()
        self._waiting: dict[GroupRef, _Waiting] = {}
        self._set_aside = SetAsideAccount()

    def launched(self, batch: int, launch: Launch) -> None:
        """Count a batch and its groups, which wait from now on."""
        self.batches.add(batch)
        self._set_aside.add(launch.set_aside)
        for group, lengths in enumerate(launch.lengths_PG):
            self._generated.add(lengths)
            self._waiting[GroupRef(batch, group)] = _Waiting(lengths, self._uses)

    def taken(self, groups: Iterable[GroupRef]) -> None:
        """Count a use of each of these groups; nothing of a group that was not launched here."""
        for reference in groups:
            if (waiting := self._waiting.get(reference)) is not None:
                self._trained.add(waiting.lengths)
                waiting.uses -= 1
                if not waiting.uses:
                    del self._waiting[reference]

    def metrics(self) -> dict[str, float]:
        """Mean response lengths (tokens) of all that was generated and of all that was trained on, and what was set aside.

        A gap between the two means is a length bias. They are left out when nothing was generated here.
        """
        metrics = self._set_aside.metrics()
        if self._generated.count:
            metrics["response/generated_length_mean_so_far"] = self._generated.mean
            metrics["response/trained_length_mean_so_far"] = self._trained.mean
        return metrics
