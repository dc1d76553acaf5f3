"""The cluster that a forecast is made for."""

from dataclasses import dataclass

from gmc.config.described import check_bounds, described
from gmc.errors import UsageError

DEFAULT_UPDATES = 1600
DEFAULT_SIZE = 8
"""P and G where neither a run nor a flag gives them."""
_MOST = 20_000_000


@dataclass(frozen=True)
class ClusterSettings:
    """W rollout workers with S slots each feed one trainer; times in seconds.

    Without in-flight updates a response keeps the weights it started with, and workers do not pause. The responses of a worker
    that fails start again elsewhere.
    """

    workers: int = described("Rollout workers", least=1)
    slots: int = described("Responses a worker generates at once", least=1)
    tokens_per_second: float = described("Tokens a second of one response on a full worker", above=0)
    prompts: int = described("P, groups of a batch and of an update", least=1)
    group_size: int = described("G, responses of a group", least=1)
    update_seconds: float = described("Time of one update on the trainer", above=0)
    sync_seconds: float = described("Time to send new weights to the workers, after every update", least=0, default=0.0)
    policy_gb: float = described(
        "Size of one policy; with --bandwidth, in place of --sync-seconds",
        least=0,
        default=0.0,
        unit=" GB",
        default_text="none",
    )
    bandwidth: float | None = described(
        "GB/s of the folder that all workers read, or of one link with --broadcast", above=0, default=None, default_text="none"
    )
    broadcast: bool = described("Workers pass weights on to each other, in place of reading a folder", default=False)
    overlap_sync: bool = described("The trainer goes on while weights travel; a newer version overtakes", default=False)
    max_ahead: int = described("Batches that may be launched beyond the one in training; 0: synchronous", least=0, default=1)
    follow: bool = described("Workers are gmc rollout --follow processes: each makes whole batches", default=False)
    at_once: int = described("Batches a follower samples at once: 1 with transformers, 2 with vLLM", least=1, default=1)
    grading_seconds: float = described(
        "Time to grade and write a batch, while a follower samples the next", least=0, default=0.0
    )
    in_flight_updates: bool = described("Workers pause for every sync and go on with the new weights", default=False)
    mtbf_hours: float | None = described(
        "Mean hours between failures of a worker", least=0.01, default=None, flag="--mtbf", unit=" hours", default_text="never"
    )
    restart_seconds: float = described("Time a failed worker is away", least=0, default=120.0)
    straggler_share: float = described("Share of workers that are slow", least=0, default=0.0)
    straggler_slowdown: float = described("How many times slower they are", least=1, default=2.0)

    def __post_init__(self) -> None:
        check_bounds(self)
        in_flight = self.prompts * self.group_size * (self.max_ahead + 1)
        for what, count in (("slots in all", self.total_slots), ("responses in flight", in_flight)):
            if count > _MOST:
                raise UsageError(f"a cluster with {count:,} {what}: at most {_MOST:,} can be simulated; scale it down")
        if (self.policy_gb > 0) != (self.bandwidth is not None) or (self.policy_gb > 0 and self.sync_seconds > 0):
            raise UsageError("--policy-gb and --bandwidth go together, in place of --sync-seconds")
        if self.broadcast and self.bandwidth is None:
            raise UsageError("--broadcast needs --policy-gb and --bandwidth")
        if self.overlap_sync and self.in_flight_updates:
            raise UsageError("--overlap-sync with --in-flight-updates: workers that pause for new weights have them at once")
        if not self.follow and (self.at_once > 1 or self.grading_seconds > 0):
            raise UsageError("--at-once and --grading-seconds are a follower's; add --follow")
        if self.follow and self.mtbf_hours is not None:
            raise UsageError("--mtbf with --follow: what a follower's death costs is not simulated; leave one of them out")
        if self.in_flight_updates and self.at_once > 1:
            raise UsageError("--in-flight-updates with --at-once: a follower that swaps weights samples one batch")
        if self.straggler_share > 1:
            raise UsageError(f"--straggler-share {self.straggler_share:g}: is a share of the workers, from 0 to 1")

    @property
    def sync(self) -> float:
        """Seconds from a trained version to workers that all have it.

        A folder is written once and read by every worker through one server's bandwidth; a broadcast is pipelined along the
        links, so it takes one policy's time however many there are.
        """
        if self.bandwidth is None:
            return self.sync_seconds
        return self.policy_gb * (1 if self.broadcast else 1 + self.workers) / self.bandwidth

    @property
    def cycle(self) -> float:
        """Seconds from the start of an update to the earliest start of the next."""
        return self.update_seconds + (0.0 if self.in_flight_updates or self.overlap_sync else self.sync)

    @property
    def gb_a_version(self) -> float:
        """Gigabytes that one version moves: a copy for each worker, and the folder's own."""
        return self.policy_gb * (self.workers + (not self.broadcast))

    @property
    def total_slots(self) -> int:
        return self.workers * self.slots
