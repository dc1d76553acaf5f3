"""How much of a run learns from version 0: staleness, or offline training on one frozen policy.

Updates count by their learning rate: under a decaying schedule the first updates, which use version 0 under a fixed delay,
carry more than their number says. Of 400 updates at delay 256 they are 64 %, and 93 % of the rate under a cosine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gmc.delays.base import Arguments, DelayModel, GroupRef
from gmc.delays.registry import arguments_of, delay_class
from gmc.errors import UsageError

VERSION_0_SHARE = "delay/version_0_rate_share_so_far"
"""The metric: share of the learning rate summed over all updates so far that fell on groups of version 0."""
MOSTLY_OFFLINE = 0.5
TRIAL_UPDATES = 30
"""A shorter run is a trial, which no other delay would make a measurement."""
FORECAST_STEPS = 100_000


@dataclass
class RateMass:
    """The learning rate summed over updates, and the part of it spent on groups of version 0.

    stale: whether version 0 served an update after the first, which starts from it and is on-policy.
    """

    total: float = 0.0
    on_version_0: float = 0.0
    stale: bool = False

    def add(self, update: int, rate: float, versions: Sequence[int]) -> None:
        """Count an update that took a step of size `rate` on groups of these policy versions; a skipped one has rate 0."""
        share = sum(version == 0 for version in versions) / len(versions)
        self.total += rate
        self.on_version_0 += rate * share
        self.stale |= update > 0 and share > 0

    @property
    def share(self) -> float | None:
        """The share on version 0; None before the first step."""
        return self.on_version_0 / self.total if self.total else None

    @property
    def mostly_offline(self) -> bool:
        """Whether more than half of it is training on a policy that has moved on."""
        return self.stale and is_mostly_offline(self.share)


def is_mostly_offline(share: float | None) -> bool:
    """Whether a share on version 0, of a run that used it at a delay, is above one half."""
    return share is not None and share > MOSTLY_OFFLINE


def applied_rate(metrics: Mapping[str, Any]) -> float:
    """The rate of an update's step, from what it logged: the schedule's times the rule's factor, 0 when it was skipped."""
    if metrics["optimizer/skipped"]:
        return 0.0
    return float(metrics["optimizer/learning_rate"]) * float(metrics["optimizer/learning_rate_scale"])


def mass_of_run(
    used: Sequence[Sequence[GroupRef]], versions: Mapping[int, int], metrics: Sequence[Mapping[str, Any]]
) -> RateMass:
    """The mass of the updates that a run has made, from its two logs and the version of each batch on disk."""
    mass = RateMass()
    for update, (groups, record) in enumerate(zip(used, metrics, strict=True)):
        mass.add(update, applied_rate(record), [versions[group.batch] for group in groups])
    return mass


def forecast(delays: DelayModel, prompts: int, group_size: int, rate_of: Callable[[int], float], updates: int) -> RateMass:
    """The mass of a whole run, from a fresh model whose decisions do not depend on response lengths. rate_of: an update's rate.

    Where the delay knows which updates use version 0, of a long run only every so many-th update is looked at.
    """
    mass, versions = RateMass(), dict[int, int]()
    if (on_version_0 := delays.version_0_updates) is not None:
        for update in range(0, updates, 1 + updates // FORECAST_STEPS):
            mass.add(update, rate_of(update), [int(update >= on_version_0)])
        mass.stale = min(on_version_0, updates) > 1
        return mass
    for update in range(updates):
        rate = rate_of(update)
        while (batch := delays.next_launch(update)) is not None:
            delays.launched(batch, update, [[0] * group_size] * prompts)
            versions[batch] = update
        mass.add(update, rate, [versions[group.batch] for group in delays.take(update)])
    return mass


def warning(share: float, spec: str, updates: int) -> str:
    """What is said of a run of so many updates that is mostly offline, with the cure. spec: its --delay."""
    found = f"{share:.1%} of the learning rate, summed over updates, falls on rollouts of version 0 (--delay {spec}):"
    if updates < TRIAL_UPDATES:
        return f"{found} {updates} updates show that everything runs, and nothing about staleness"
    try:
        cure = delay_class(spec).less_offline(arguments_of(spec))
    except UsageError:  # `gmc status` where the package that brought the delay is not installed
        cure = DelayModel.less_offline(Arguments(spec, "", ()))
    return f"{found} mostly offline training on one frozen policy, which says little about staleness; {cure}"
