"""Where training's rollouts come from: the one interface between the loop and whatever makes rollouts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from gmc.engines.base import Engine
from gmc.store.logs import GroupRef
from gmc.store.shards.groups import Groups
from gmc.store.shards.reader import Shard

Progress = Callable[[int], None]
"""Called with the number of newly finished responses."""


class Samplers(Protocol):
    """Processes that make launch batches while training goes on. Called on rank 0 alone."""

    def start(self, batch: int, version: int, weights: Mapping[str, Tensor] | None) -> None:
        """Have a batch made by policy `version`; a second call for it does nothing.

        weights: what training changes, by name, as of that version; None for version 0 and where they were given before.
        """
        ...

    def shard(self, batch: int) -> Shard:
        """The batch that was started, once it is made. Raises `GmcError` when it cannot be."""
        ...


class RolloutSource(Protocol):
    """Hands out the groups of each update. It never drops a rollout: launched = trained + waiting, in groups.

    Groups with equal rewards may give their places to further prompts: launched = trained + waiting + set aside.
    Where a delay uses each group several times, a group counts once a use.

    Three implementations: `ScheduledSource` generates what a delay model asks for, `InflightSource` lets several versions
    sample one response, `LiveSource` waits for what followers make.
    """

    @property
    def waiting(self) -> int:
        """Groups launched and not yet taken."""
        ...

    @property
    def to_fill(self) -> int | None:
        """Batches to be generated before the first update; None when that is not known ahead."""
        ...

    def launch(self, update: int, progress: Progress | None = None) -> bool:
        """Have ready what `update` takes, as the current policy version; False when this process was asked to stop."""
        ...

    def take(self, update: int) -> Groups:
        """The P groups that `update` trains on, none of them twice."""
        ...

    def metrics(self) -> dict[str, float]:
        """What it adds to the metrics of the update that was taken last."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep besides the shards and used.jsonl, as strict JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], used: Sequence[Sequence[GroupRef]]) -> None:
        """Stand where a source with this `state` stood after the updates in `used`, from the shards on disk.

        Raises `DataError` when a shard is missing, or the state or `used` is another source's.
        """
        ...

    @property
    def engine(self) -> Engine | None:
        """What it samples with in this process, None where others sample."""
        return None

    def settle(self) -> None:
        """On every rank, before a checkpoint: have on the disk what only the policies before it could make."""
        return

    def check_start(self, update: int) -> None:
        """Before the first `launch`, that of `update`: raise `UsageError` for rollouts on disk that it is sure to refuse."""
        return

    @property
    def knows_lags(self) -> bool:
        """Whether it is known which versions of this run's policy made its rollouts."""
        return True

    @property
    def in_flight(self) -> Mapping[int, int]:
        """The first version of each batch that is launched and has no shard yet, because responses of it go on."""
        return {}

    def attachments(self) -> Mapping[str, bytes]:
        """Files that a checkpoint must keep besides `state_dict`, by name."""
        return {}

    def load_attachments(self, attachments: Mapping[str, bytes], origin: str) -> None:
        """Take back what `attachments` gave, before `load_state_dict`. origin: the checkpoint, for messages."""
        return

    def published(self, version: int, keep: int | None = None) -> None:
        """On rank 0, after policy `version` was published. Only a source that others watch has something to do.

        keep: a version that must stay published whatever comes after it.
        """
        return

    def ended(self, updates: int) -> None:
        """On rank 0, after all planned updates were made and the last policy published."""
        return
