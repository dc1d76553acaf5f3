"""The cluster that a forecast is made for."""

import math
from dataclasses import dataclass

from gmc.errors import UsageError


@dataclass(frozen=True)
class ClusterSettings:
    """W rollout workers with S slots each feed one trainer; times in seconds.

    tokens_per_second: of one response, while its worker is full; prompts, group_size: P and G of a batch and of an update;
    update_seconds: one update on the trainer; sync_seconds: bringing new weights to the workers, after every update;
    max_ahead: A, how many batches beyond the one in training may be launched (0 is synchronous);
    in_flight_updates: workers pause for each sync and go on with the new weights; without it a response keeps the weights
    it started with, and workers do not pause; mtbf_hours: mean time between failures of one worker (None: they never fail);
    restart_seconds: how long a failed worker is away; its responses start again elsewhere; straggler_share: share of
    workers that are slow; straggler_slowdown: by which factor.
    """

    workers: int
    slots: int
    tokens_per_second: float
    prompts: int
    group_size: int
    update_seconds: float
    sync_seconds: float = 0.0
    max_ahead: int = 1
    in_flight_updates: bool = False
    mtbf_hours: float | None = None
    restart_seconds: float = 120.0
    straggler_share: float = 0.0
    straggler_slowdown: float = 2.0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise UsageError(f"--{name.replace('_', '-')} {value:g}: must be at least {least:g}")
        for name in ("tokens_per_second", "update_seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"--{name.replace('_', '-')} {value:g}: must be above 0")
        if self.mtbf_hours is not None and not self.mtbf_hours >= _LEAST_MTBF_HOURS:
            raise UsageError(f"--mtbf {self.mtbf_hours:g}: must be at least {_LEAST_MTBF_HOURS} hours")
        in_flight = self.prompts * self.group_size * (self.max_ahead + 1)
        for what, count in (("slots in all", self.total_slots), ("responses in flight", in_flight)):
            if count > _MOST:
                raise UsageError(f"a cluster with {count:,} {what}: at most {_MOST:,} can be simulated; scale it down")
        if self.straggler_share > 1:
            raise UsageError(f"--straggler-share {self.straggler_share:g}: is a share of the workers, from 0 to 1")

    @property
    def total_slots(self) -> int:
        return self.workers * self.slots


_MOST = 20_000_000
_LEAST = {
    "workers": 1,
    "slots": 1,
    "prompts": 1,
    "group_size": 1,
    "sync_seconds": 0,
    "max_ahead": 0,
    "restart_seconds": 0,
    "straggler_share": 0,
    "straggler_slowdown": 1,
}
_LEAST_MTBF_HOURS = 0.01
