"""Delayed training of many toy runs at once: one arm, several seeds, several learning rates.

Shapes: R runs (seeds × rates, the rates of a seed together), P groups, G responses a group, T tokens, D parameters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.delays.base import delay_of
from gmc.estimators.base import Estimator
from gmc.lab.toy.draws import draw_groups
from gmc.lab.toy.rules import RuleOverRuns
from gmc.lab.toy.sampled import Sampled
from gmc.lab.toy.schedule import Schedule
from gmc.lab.toy.steps import Ascent, Optimizer
from gmc.lab.toy.task import PROMPTS, Task, make_tasks

EVALUATE_EVERY = 10


@dataclass(frozen=True)
class Plan:
    """What a run is besides its rule, seed and rate. schedule: of delays; optimizer, updates, prompts (P), group_size (G)."""

    schedule: Schedule
    optimizer: Optimizer = "adam"
    updates: int = 300
    prompts: int = 8
    group_size: int = 8


@dataclass(frozen=True)
class Curves:
    """value_RE: exact J after every `EVALUATE_EVERY` updates; spread_R: std of log ρ over a batch, mean over evaluations."""

    value_RE: Tensor
    spread_R: Tensor


def train_runs(
    rule: Estimator,
    plan: Plan,
    seeds: Sequence[int],
    rates: Sequence[float],
    advance: Callable[[int], None] = lambda count: None,
) -> Curves:
    """Train seeds × rates runs of one rule. Rows are seed by seed. advance: called with the runs of each finished update.

    Raises `UsageError` for a rule that needs what the model lacks, `EstimatorStageError` for one that breaks its contract.
    """
    runs = Runs(rule, plan, seeds, rates)
    values, spreads = [], []
    for update in range(plan.updates):
        spread_R = runs.update(update)
        if update % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            values.append(runs.task.value(runs.theta_RD))
            spreads.append(spread_R)
        advance(len(runs.theta_RD))
    return Curves(torch.stack(values, dim=1), torch.stack(spreads, dim=1).mean(1))


class Runs:
    """The state of all runs: parameters, the versions still wanted, the optimizer and the rule."""

    def __init__(self, rule: Estimator, plan: Plan, seeds: Sequence[int], rates: Sequence[float]) -> None:
        self._plan, self._seeds, self._times = plan, seeds, len(rates)
        self.task: Task = make_tasks(seeds).repeat(len(rates))
        self.theta_RD = self.task.start_RD
        self._rate_R = torch.tensor(list(rates) * len(seeds), dtype=torch.float64)
        self._rule = RuleOverRuns(rule, len(self.theta_RD))
        self._ascent = Ascent(plan.optimizer, self.theta_RD)
        self._versions: dict[int, Tensor] = {}
        self._last_use = plan.schedule.last_use

    def update(self, number: int) -> Tensor:
        """One update of every run; returns the standard deviation of log ρ over each run's batch."""
        self._keep(number)
        plan, versions_P = self._plan, self._plan.schedule.versions(number)
        indices_SP, uniforms_SPGT = draw_groups(
            self._seeds,
            plan.schedule.groups_NP[number],
            all_prompts=PROMPTS,
            prompts=plan.prompts,
            group_size=plan.group_size,
            tokens=self.task.policy.tokens,
        )
        prompt_RP, uniforms_RPGT = (value.repeat_interleave(self._times, 0) for value in (indices_SP, uniforms_SPGT))
        sampled = Sampled.draw(
            self.task,
            self.theta_RD,
            lambda prompts_RPE: self._behavior_table(versions_P, prompts_RPE),
            prompt_RP,
            uniforms_RPGT,
        )
        batch = sampled.batch(
            self._rule.needs,
            update=number,
            planned_updates=plan.updates,
            lag_P=torch.tensor([delay_of(number, version) for version in versions_P]),
            anchor=lambda: self._versions[max(0, number - self._rule.anchor_lag)],
        )
        step = self._rule.step(batch, len(self.theta_RD), sampled.gradient)
        rate_R = self._rate_R if step.scale_R is None else self._rate_R * step.scale_R
        self.theta_RD = self._ascent.step(self.theta_RD, step.gradient_RD, rate_R, step.active_R)
        return sampled.spread_R

    def _keep(self, number: int) -> None:
        """Keep this version while a later update takes its groups or anchors on it, and drop those that no update wants."""
        lag = self._rule.anchor_lag
        self._versions[number] = self.theta_RD
        for version in list(self._versions):
            if version != number and self._last_use.get(version, -1) < number and version < number - lag:
                del self._versions[version]

    def _behavior_table(self, versions_P: list[int], prompts_RPE: Tensor) -> Tensor:
        """Each group's log-probs under the version that generated it, [R, P, T, W, V]."""
        policy = self.task.policy
        if len(set(versions_P)) == 1:
            return policy.log_table(self._versions[versions_P[0]], prompts_RPE)
        columns = [
            policy.log_table(self._versions[version], prompts_RPE[:, [place]]) for place, version in enumerate(versions_P)
        ]
        return torch.cat(columns, dim=1)


def final_value(value_RE: Tensor, last: int = 5) -> Tensor:
    """The final J of each run: the mean of its last five evaluations."""
    return value_RE[:, -last:].mean(1)


def worst_drop(value_RE: Tensor) -> Tensor:
    """How far each run ever fell below its highest J before."""
    return (value_RE.cummax(1).values - value_RE).amax(1)
