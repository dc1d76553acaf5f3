"""Driving a delay model the way training does, with a record of everything it decided."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gmc.delays.base import DelayModel, GroupRef, GroupTimes

Lengths = Callable[[int], list[list[int]]]


@dataclass
class Drive:
    launches: list[tuple[int, int]] = field(default_factory=list)  # (batch, policy version)
    taken: list[list[GroupRef]] = field(default_factory=list)
    times: dict[GroupRef, GroupTimes] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)

    @property
    def versions(self) -> dict[int, int]:
        return dict(self.launches)

    @property
    def delays(self) -> list[list[int]]:
        return [[update - self.versions[ref.batch] for ref in groups] for update, groups in enumerate(self.taken)]


def drive(model: DelayModel, updates: int, lengths: Lengths) -> Drive:
    record = Drive()
    if model.calibration_batches:
        model.calibrate([lengths(batch) for batch in range(model.calibration_batches)])
    for update in range(updates):
        while (batch := model.next_launch(update)) is not None:
            times = model.launched(batch, update, lengths(batch))
            record.launches.append((batch, update))
            record.times |= {GroupRef(batch, group): value for group, value in enumerate(times)}
        record.taken.append(model.take(update))
        record.waiting.append(model.waiting)
    return record


def constant(length: int, prompts: int = 4, group_size: int = 2) -> Lengths:
    return lambda batch: [[length] * group_size for _ in range(prompts)]


def varied(prompts: int = 4, group_size: int = 2) -> Lengths:
    """Lengths that differ by batch, group and sample, from plain arithmetic."""
    return lambda batch: [
        [(batch * 37 + group * 101 + sample * 53) % 400 for sample in range(group_size)] for group in range(prompts)
    ]
