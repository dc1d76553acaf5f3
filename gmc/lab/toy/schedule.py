"""Which groups each update of a toy run takes and which version made them: any installed delay that needs no real rollouts."""

from dataclasses import dataclass

from gmc.delays.base import DelayContext
from gmc.delays.registry import arguments_of, delay_class
from gmc.errors import UsageError
from gmc.store.logs import GroupRef


@dataclass(frozen=True)
class Schedule:
    """groups_NP: the groups of each update; version_of: the version that generated each launch batch."""

    groups_NP: list[list[GroupRef]]
    version_of: dict[int, int]

    def versions(self, update: int) -> list[int]:
        """The version of each group of an update."""
        return [self.version_of[group.batch] for group in self.groups_NP[update]]

    @property
    def last_use(self) -> dict[int, int]:
        """The last update that takes a group of a version, for every version that is used."""
        return {version: update for update in range(len(self.groups_NP)) for version in self.versions(update)}


def make_schedule(spec: str, *, updates: int, prompts: int, group_size: int, tokens: int) -> Schedule:
    """Drive a delay model over `updates` updates with responses of `tokens` tokens. All runs of a study share it.

    Raises `UsageError` for a delay that lives from real rollouts, or that cannot serve so many updates.
    """
    kind, arguments = delay_class(spec), arguments_of(spec)
    if kind.live or kind.needs_existing_shards or not kind.generates:
        raise UsageError(f"delay {spec}: it needs rollouts on disk or real followers, which this model does not have")
    context = DelayContext(prompts, group_size, seed=0, updates=updates)
    horizon = kind.horizon(arguments, context)
    if horizon is not None and horizon < updates:
        raise UsageError(f"delay {spec}: it serves {horizon} updates, and {updates} are planned")
    delays = kind.parse(arguments, context)
    lengths_PG = [[tokens] * group_size] * prompts
    if delays.calibration_batches:
        delays.calibrate([lengths_PG] * delays.calibration_batches)
    groups_NP, version_of = [], {}
    for update in range(updates):
        while (batch := delays.next_launch(update)) is not None:
            delays.launched(batch, update, lengths_PG)
            version_of[batch] = update
        groups_NP.append(delays.take(update))
    return Schedule(groups_NP, version_of)
