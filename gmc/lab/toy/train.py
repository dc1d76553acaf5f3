"""Delayed training of many toy runs at once: one arm, several seeds, several learning rates.

Shapes: R runs (seeds × rates, the rates of a seed together), P groups, G responses a group, T tokens, D parameters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.delays.base import delay_of
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Batch, Need
from gmc.lab.toy.draws import draw_groups
from gmc.lab.toy.policy import at_cells
from gmc.lab.toy.rules import RuleOverRuns
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
    runs = _Runs(rule, plan, seeds, rates)
    values, spreads = [], []
    for update in range(plan.updates):
        spread_R = runs.update(update)
        if update % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            values.append(runs.task.value(runs.theta_RD))
            spreads.append(spread_R)
        advance(len(runs.theta_RD))
    return Curves(torch.stack(values, dim=1), torch.stack(spreads, dim=1).mean(1))


class _Runs:
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
        policy, runs = self.task.policy, len(self.theta_RD)
        groups = self._plan.schedule.groups_NP[number]
        indices_SP, uniforms_SPGT = draw_groups(
            self._seeds,
            groups,
            all_prompts=PROMPTS,
            prompts=self._plan.prompts,
            group_size=self._plan.group_size,
            tokens=policy.tokens,
        )
        prompt_RP, uniforms_RPGT = (value.repeat_interleave(self._times, 0) for value in (indices_SP, uniforms_SPGT))
        prompts_RPE = self.task.prompts_RME[torch.arange(runs)[:, None], prompt_RP]
        behavior_RPTWV = self._behavior_table(number, prompts_RPE)
        cells_RPTG = policy.sample(behavior_RPTWV, uniforms_RPGT)
        current_RPTWV = policy.log_table(self.theta_RD, prompts_RPE)
        logp_RPTG, behavior_RPTG = at_cells(current_RPTWV, cells_RPTG), at_cells(behavior_RPTWV, cells_RPTG)

        def computed(need: Need) -> Tensor:
            return self._bring(need, number, prompts_RPE, cells_RPTG, behavior_RPTWV, current_RPTWV, behavior_RPTG)

        def model_gradient(worth_BT: Tensor) -> Tensor:
            worth_RPTG = worth_BT.reshape(runs, len(groups), self._plan.group_size, policy.tokens).transpose(2, 3)
            divisor = len(groups) * self._plan.group_size * policy.tokens
            return policy.gradient(current_RPTWV, prompts_RPE, cells_RPTG, worth_RPTG / divisor)

        logp_BT = _rows(logp_RPTG)
        batch = Batch(
            rewards_PG=self.task.rewards(cells_RPTG, prompt_RP).flatten(0, 1),
            logp_BT=logp_BT.requires_grad_(),
            mask_BT=torch.ones_like(logp_BT, dtype=torch.bool),
            max_response_tokens=policy.tokens,
            update=number,
            brought={need: computed(need) for need in self._rule.needs},
        )
        step = self._rule.step(batch, runs, model_gradient)
        rate_R = self._rate_R if step.scale_R is None else self._rate_R * step.scale_R
        self.theta_RD = self._ascent.step(self.theta_RD, step.gradient_RD, rate_R, step.active_R)
        return (logp_RPTG - behavior_RPTG).sum(2).flatten(1).std(1)

    def _keep(self, number: int) -> None:
        """Keep this version while a later update takes its groups or anchors on it, and drop those that no update wants."""
        lag = self._rule.anchor_lag
        self._versions[number] = self.theta_RD
        for version in list(self._versions):
            if version != number and self._last_use.get(version, -1) < number and version < number - lag:
                del self._versions[version]

    def _behavior_table(self, number: int, prompts_RPE: Tensor) -> Tensor:
        """Each group's log-probs under the version that generated it, [R, P, T, W, V]."""
        versions_P = self._plan.schedule.versions(number)
        policy = self.task.policy
        if len(set(versions_P)) == 1:
            return policy.log_table(self._versions[versions_P[0]], prompts_RPE)
        columns = [
            policy.log_table(self._versions[version], prompts_RPE[:, [place]]) for place, version in enumerate(versions_P)
        ]
        return torch.cat(columns, dim=1)

    def _bring(
        self,
        need: Need,
        number: int,
        prompts_RPE: Tensor,
        cells_RPTG: Tensor,
        behavior_RPTWV: Tensor,
        current_RPTWV: Tensor,
        behavior_RPTG: Tensor,
    ) -> Tensor:
        match need:
            case Need.BEHAVIOR_LOGP:
                return _rows(behavior_RPTG)
            case Need.LAGS:
                lag_P = torch.tensor([delay_of(number, version) for version in self._plan.schedule.versions(number)])
                return _rows(lag_P.double()[None, :, None, None].expand(cells_RPTG.shape))
            case Need.BEHAVIOR_ENTROPY:
                entropy_RPTW = -(behavior_RPTWV.exp() * behavior_RPTWV).sum(-1)
                return _rows(entropy_RPTW.gather(-1, cells_RPTG // self.task.policy.vocabulary))
            case Need.ANCHOR_LOGP:
                anchor_RD = self._versions[max(0, number - self._rule.anchor_lag)]
                return _rows(at_cells(self.task.policy.log_table(anchor_RD, prompts_RPE), cells_RPTG))
            case Need.SCORE_NORMS:
                return _log_score_norms(prompts_RPE, cells_RPTG, current_RPTWV)
            case _:
                return torch.tensor(self._plan.updates)


def _rows(value_RPTG: Tensor) -> Tensor:
    """[R, P, T, G] as one row a response, run by run and group by group."""
    return value_RPTG.transpose(2, 3).flatten(0, 2)


def _log_score_norms(prompts_RPE: Tensor, cells_RPTG: Tensor, log_RPTWV: Tensor) -> Tensor:
    """log ‖∇ log π(y)‖² by response: tokens touch parameters of their own, U once and B by the embedding, so
    ‖∇ log π(y)‖² = (1 + ‖e‖²)·Σ_t ‖1_v − π(·|w)‖²."""
    chance_RPTWV = log_RPTWV.exp()
    squared_RPTW = chance_RPTWV.square().sum(-1)
    own_RPTG = at_cells(chance_RPTWV, cells_RPTG)
    missed_RPTG = 1 - 2 * own_RPTG + squared_RPTW.gather(-1, cells_RPTG // log_RPTWV.shape[-1])
    return ((1 + prompts_RPE.square().sum(-1))[:, :, None] * missed_RPTG.sum(2)).log().flatten()


def final_value(value_RE: Tensor, last: int = 5) -> Tensor:
    """The final J of each run: the mean of its last five evaluations."""
    return value_RE[:, -last:].mean(1)


def worst_drop(value_RE: Tensor) -> Tensor:
    """How far each run ever fell below its highest J before."""
    return (value_RE.cummax(1).values - value_RE).amax(1)
