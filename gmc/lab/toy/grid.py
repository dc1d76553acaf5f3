"""A grid of toy runs: delays × optimizers × rules × rates × seeds. A line of results holds all seeds of one cell."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
from pydantic import Field, model_validator

from gmc.config.file_kinds import TOY
from gmc.delays.registry import arguments_of
from gmc.errors import UsageError
from gmc.estimators.errors import EstimatorStageError
from gmc.lab.arms import Arm, arms_of, installed_arms, require_unique
from gmc.lab.study_file import Grid, ResultLines, rounded
from gmc.lab.toy.policy import MarkovPolicy
from gmc.lab.toy.rules import RuleOverRuns
from gmc.lab.toy.schedule import make_schedule
from gmc.lab.toy.steps import Optimizer
from gmc.lab.toy.train import Plan, final_value, train_runs, worst_drop

KEYS = ("updates", "prompts", "group_size", "seeds", "delay", "optimizer", "rate", "arm")
RUNS_AT_ONCE = 96
"""Larger blocks leave the processor's caches, smaller ones pay torch's overhead more often."""


class ToyGrid(Grid):
    """One grid; every list is an axis."""

    command = TOY
    delays: list[int | str] = Field([64], description="delays, as --delay takes them")
    optimizers: list[Optimizer] = Field(["adam"], description="adam, sgd, or one-norm: adam on gradients of length 1")
    rates: list[float] = Field([0.04, 0.08, 0.16], description="constant learning rates")
    seeds: int = Field(6, ge=1, description="runs of each cell, by seeds 0, 1, …; all arms share tasks and draws of a seed")
    updates: int = Field(300, ge=50, description="updates of a run")
    prompts: int = Field(8, ge=1, description="P, groups an update")
    group_size: int = Field(8, ge=2, description="G, responses a group")
    rules: dict[str, dict[str, Any]] = Field({}, description="settings by rule, a list is an axis; none: every installed rule")

    @model_validator(mode="after")
    def _possible(self) -> "ToyGrid":
        if not self.rates or min(self.rates) <= 0:
            raise ValueError("rates must be numbers above 0")
        if len(set(self.rates)) < len(self.rates) or len(set(map(str, self.delays))) < len(self.delays):
            raise ValueError("list each rate and each delay once")
        return self

    @property
    def arms(self) -> list[Arm]:
        """The rules with their settings."""
        return arms_of(self.rules) if self.rules else installed_arms()

    def jobs(self, arms: list[Arm] | None = None) -> Iterator["Job"]:
        """One job a delay, optimizer and arm, in the order of computing. arms: default the grid's own.

        Raises `UsageError` for a delay or rule that is unknown, and when an arm stands twice.
        """
        require_unique(arms := self.arms if arms is None else arms)
        for optimizer in self.optimizers:
            for delay in map(str, self.delays):
                arguments_of(delay)
                for arm in arms:
                    yield Job(self, arm, delay, optimizer)


@dataclass(frozen=True)
class Job:
    """The runs of one arm at one delay: seeds × rates."""

    grid: ToyGrid
    arm: Arm
    delay: str
    optimizer: Optimizer

    @property
    def runs(self) -> int:
        """How many."""
        return self.grid.seeds * len(self.grid.rates)

    @property
    def cells(self) -> list[dict[str, Any]]:
        """What tells its results apart from others', one a rate."""
        shared = {key: getattr(self.grid, key) for key in ("updates", "prompts", "group_size", "seeds")}
        about = {**shared, "delay": self.delay, "optimizer": self.optimizer, "arm": self.arm.label}
        return [{**about, "rate": rate} for rate in self.grid.rates]


def check_jobs(jobs: list[Job]) -> None:
    """Raise `UsageError` for a rule or delay that this model cannot serve, before anything runs.

    Also for grids that share a delay and optimizer but not their sizes: their runs could not be compared.
    """
    sizes: dict[tuple[str, str], tuple[int, ...]] = {}
    for job in jobs:
        own = (job.grid.seeds, job.grid.updates, job.grid.prompts, job.grid.group_size)
        if sizes.setdefault((job.delay, job.optimizer), own) != own:
            raise UsageError(
                f"delay {job.delay}, {job.optimizer}: two grids differ in seeds, updates, prompts or group_size; "
                "their runs cannot be compared, so put them into two studies"
            )
    for arm in {job.arm.label: job.arm for job in jobs}.values():
        RuleOverRuns(arm.build(), 1)
    for delay, grid in {(job.delay, job.grid.updates): (job.delay, job.grid) for job in jobs}.values():
        _plan(grid, delay, "adam")


def run_job(job: Job) -> list[dict[str, Any]]:
    """Train a job's runs; one record a rate. A rule that breaks its contract gives records with `error` and no values."""
    torch.set_num_threads(1)
    grid, rates = job.grid, job.grid.rates
    plan = _plan(grid, job.delay, job.optimizer)
    block = max(1, RUNS_AT_ONCE // len(rates))
    values, spreads = [], []
    try:
        for first in range(0, grid.seeds, block):
            seeds = range(first, min(first + block, grid.seeds))
            curves = train_runs(job.arm.build(), plan, seeds, rates)
            values.append(curves.value_RE)
            spreads.append(curves.spread_R)
    except EstimatorStageError as error:
        return [{**cell, "rule": job.arm.rule, "settings": dict(job.arm.settings), "error": str(error)} for cell in job.cells]
    value_SLE = torch.cat(values).reshape(grid.seeds, len(rates), -1)
    spread_SL = torch.cat(spreads).reshape(grid.seeds, len(rates))
    records = []
    for index, cell in enumerate(job.cells):
        value_SE = value_SLE[:, index]
        records.append(
            {
                **cell,
                "rule": job.arm.rule,
                "settings": dict(job.arm.settings),
                "final": _four(final_value(value_SE)),
                "area": _four(value_SE.mean(1)),
                "drop": _four(worst_drop(value_SE)),
                "spread": rounded(float(spread_SL[:, index].mean()), 3),
            }
        )
    return records


def run_jobs(jobs: list[Job], lines: ResultLines, *, processes: int = 1, advance: Callable[[int, str], None]) -> None:
    """Run the jobs whose lines are not there yet, and add them. processes: how many work side by side, one thread each.

    advance: called with the runs of each job that is made.
    """
    waiting = [job for job in jobs if not is_done(job, lines)]
    if processes == 1:
        for job in waiting:
            _add(lines, run_job(job))
            advance(job.runs, f"delay {job.delay}, {job.optimizer}, {job.arm.label}")
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        started = {pool.submit(run_job, job): job for job in waiting}
        for finished in as_completed(started):
            job = started[finished]
            _add(lines, finished.result())
            advance(job.runs, f"delay {job.delay}, {job.optimizer}, {job.arm.label}")
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def is_done(job: Job, lines: ResultLines) -> bool:
    """Whether every line of a job is there."""
    return all(lines.find(cell) for cell in job.cells)


def found_records(jobs: list[Job], lines: ResultLines) -> list[dict[str, Any]]:
    """The records of the jobs, in their order, as far as they are there."""
    return [record for job in jobs for cell in job.cells if (record := lines.find(cell)) is not None]


def _add(lines: ResultLines, records: list[dict[str, Any]]) -> None:
    for record in records:
        if lines.find(record) is None:
            lines.add(record)


def _plan(grid: ToyGrid, delay: str, optimizer: Optimizer) -> Plan:
    schedule = make_schedule(
        delay, updates=grid.updates, prompts=grid.prompts, group_size=grid.group_size, tokens=MarkovPolicy().tokens
    )
    return Plan(schedule, optimizer, grid.updates, grid.prompts, grid.group_size)


def _four(values_S: torch.Tensor) -> list[float | None]:
    """Four decimals; None for a run that left the numbers."""
    return [round(value, 4) if value == value else None for value in values_S.tolist()]
