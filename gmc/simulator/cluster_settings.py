"""The cluster that a forecast is made for."""

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from gmc.errors import UsageError

DEFAULT_UPDATES = 1600
DEFAULT_SIZE = 8
"""P and G where neither a run nor a flag gives them."""
_MOST = 20_000_000


def _setting(meaning: str, *, least: float | None = None, default: Any = MISSING, **facts: Any) -> Any:
    """A field that documents itself. least: the smallest value; facts: above, flag, unit, default_text."""
    return field(default=default, metadata={"meaning": meaning, "least": least, **facts})


@dataclass(frozen=True)
class ClusterSettings:
    """W rollout workers with S slots each feed one trainer; times in seconds.

    Without in-flight updates a response keeps the weights it started with, and workers do not pause. The responses of a worker
    that fails start again elsewhere.
    """

    workers: int = _setting("Rollout workers", least=1)
    slots: int = _setting("Responses a worker generates at once", least=1)
    tokens_per_second: float = _setting("Tokens a second of one response on a full worker", above=0)
    prompts: int = _setting("P, groups of a batch and of an update", least=1)
    group_size: int = _setting("G, responses of a group", least=1)
    update_seconds: float = _setting("Time of one update on the trainer", above=0)
    sync_seconds: float = _setting("Time to bring new weights to the workers, after every update", least=0, default=0.0)
    max_ahead: int = _setting("Batches that may be launched beyond the one in training; 0: synchronous", least=0, default=1)
    in_flight_updates: bool = _setting("Workers pause for every sync and go on with the new weights", default=False)
    mtbf_hours: float | None = _setting(
        "Mean hours between failures of a worker", least=0.01, default=None, flag="--mtbf", unit=" hours", default_text="never"
    )
    restart_seconds: float = _setting("Time a failed worker is away", least=0, default=120.0)
    straggler_share: float = _setting("Share of workers that are slow", least=0, default=0.0)
    straggler_slowdown: float = _setting("How many times slower they are", least=1, default=2.0)

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least, above = getattr(self, each.name), each.metadata["least"], each.metadata.get("above")
            if value is None:
                continue
            flag, unit = flag_of_field(each), each.metadata.get("unit", "")
            if least is not None and not (math.isfinite(value) and value >= least):
                raise UsageError(f"{flag} {value:g}: must be at least {least:g}{unit}")
            if above is not None and not (math.isfinite(value) and value > above):
                raise UsageError(f"{flag} {value:g}: must be above {above:g}")
        in_flight = self.prompts * self.group_size * (self.max_ahead + 1)
        for what, count in (("slots in all", self.total_slots), ("responses in flight", in_flight)):
            if count > _MOST:
                raise UsageError(f"a cluster with {count:,} {what}: at most {_MOST:,} can be simulated; scale it down")
        if self.straggler_share > 1:
            raise UsageError(f"--straggler-share {self.straggler_share:g}: is a share of the workers, from 0 to 1")

    @property
    def total_slots(self) -> int:
        return self.workers * self.slots


def flag_of_field(each: Any) -> str:
    """A field as it is typed."""
    return str(each.metadata.get("flag", f"--{each.name.replace('_', '-')}"))
