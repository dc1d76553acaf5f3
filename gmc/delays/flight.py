"""What a delay whose responses are sampled by several versions must tell a trainer: the clock while tokens are made."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gmc.store.logs import GroupRef


class FlightClock(Protocol):
    """Time in updates, from 0. Version n stands from the end of update n − 1 to the end of update n.

    A trainer begins the batches that are due, samples of each response as many tokens as begin before the current version is
    replaced, reports every group whose responses are finished, and takes P of them once they are ready.
    """

    @property
    def has_begun(self) -> bool:
        """Whether a batch was launched."""
        ...

    @property
    def now(self) -> float:
        """When the current version began to stand."""
        ...

    @property
    def start(self) -> float | None:
        """When the next update starts, by what was reported ready; None while that is less than P groups."""
        ...

    @property
    def starts(self) -> Sequence[float]:
        """When each update so far started."""
        ...

    @property
    def waiting(self) -> int:
        """Number of groups launched and not yet taken."""
        ...

    def waiting_groups(self) -> set[GroupRef]:
        """The groups that are ready and not taken."""
        ...

    def next_launch(self, update: int) -> int | None:
        """The launch batch that comes next, None when `update` needs no further one."""
        ...

    def begin(self, batch: int, update: int) -> None:
        """A batch is launched: the next one."""
        ...

    def tokens_before(self, batch: int, until: float, most: int) -> int:
        """How many tokens of a response of `batch`, at most `most`, begin before the time `until`."""
        ...

    def ready(self, group: GroupRef, longest: int) -> float:
        """All responses of a group are finished, the longest with so many tokens; returns when it is ready."""
        ...

    def take(self, update: int) -> list[GroupRef]:
        """The P groups that `update` trains on, in the order of use."""
        ...

    def flight_state(self) -> dict[str, Any]:
        """Where the clock stands, as strict JSON."""
        ...

    def load_flight_state(self, state: Mapping[str, Any]) -> None:
        """Stand where a clock with this state stood. Raises `ValueError` or `KeyError` for another clock's state."""
        ...
