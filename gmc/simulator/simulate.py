"""Run a delay model without a language model: only response lengths go in, a schedule and its statistics come out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gmc.delays.base import DelayModel, GroupTimes, delay_of
from gmc.delays.schedule import ScheduleRow
from gmc.simulator.lengths import Lengths, LengthSource
from gmc.simulator.littles_law import Ledger
from gmc.simulator.statistics import DelayStatistics, LengthStatistics


@dataclass
class _Launch:
    """A batch of which some uses are still to come: `left` of them."""

    policy_version: int
    lengths_PG: Lengths
    times: list[GroupTimes]
    left: int


@dataclass(frozen=True)
class Simulation:
    """What a simulated run used, and when.

    schedule: one row a group; delays: by trained response; trained, launched: lengths of the responses that updates used and
    of all that were launched; uses: how many updates use each group; waiting: groups launched and not used by the end, each
    counted for every use still to come; waits: updates that waited for ready groups
    (None without a clock); clock: C in updates per 100 tokens where one was calibrated.
    """

    updates: int
    prompts: int
    schedule: list[ScheduleRow]
    delays: DelayStatistics
    trained: LengthStatistics
    launched: LengthStatistics
    uses: int
    waiting: int
    waits: int | None
    clock: float | None

    def summary(self) -> dict[str, Any]:
        return {
            "updates": self.updates,
            "delay": self.delays.summary(),
            "waited_share": None if self.waits is None else self.waits / self.updates,
            "calibrated_clock": self.clock,
            "uses_of_each_group": self.uses,
            "waiting_groups": self.waiting,
            "trained_lengths": self.trained.summary(),
            "launched_lengths": self.launched.summary(),
        }


def simulate(
    delays: DelayModel, lengths: LengthSource, *, updates: int, on_update: Callable[[], None] = lambda: None
) -> Simulation:
    """Drive `delays` through `updates` updates as training would, with lengths in place of responses.

    `on_update` is called after each update.

    Raises `GmcError` when the run breaks Little's law or loses a group: a fault of the delay model, not of its input.
    """
    if delays.calibration_batches:
        delays.calibrate([lengths.of_batch(batch).tolist() for batch in range(delays.calibration_batches)])
    statistics, trained, launched = DelayStatistics(), LengthStatistics(), LengthStatistics()
    schedule: list[ScheduleRow] = []
    in_flight: dict[int, _Launch] = {}
    ledger = Ledger()
    for update in range(updates):
        while (batch := delays.next_launch(update)) is not None:
            lengths_PG = lengths.of_batch(batch)
            times = delays.launched(batch, update, lengths_PG.tolist())
            in_flight[batch] = _Launch(update, lengths_PG, times, left=len(times) * delays.uses)
            launched.add(lengths_PG.ravel())
            ledger.entered += len(times) * delays.uses
        ages, used = [], []
        for position, (batch, group) in enumerate(delays.take(update)):
            launch = in_flight[batch]
            schedule.append(ScheduleRow(update, position, batch, group, launch.policy_version, *launch.times[group]))
            ages.append(delay_of(update, launch.policy_version))
            used.append(launch.lengths_PG[group])
            launch.left -= 1
            if not launch.left:
                del in_flight[batch]
        ledger.leave(len(ages), sum(ages))
        ledger.number_over_time += delays.waiting
        statistics.add(np.repeat(ages, lengths.group_size), np.concatenate(used))
        trained.add(np.concatenate(used))
        on_update()
    ledger.check(delays.waiting, sum((updates - launch.policy_version) * launch.left for launch in in_flight.values()))
    return Simulation(
        updates=updates,
        prompts=lengths.prompts,
        schedule=schedule,
        delays=statistics,
        trained=trained,
        launched=launched,
        uses=delays.uses,
        waiting=delays.waiting,
        waits=delays.waits,
        clock=delays.state_dict().get("clock"),
    )
