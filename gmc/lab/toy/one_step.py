"""One step of the toy policy on data of a given age: each rule's mean direction and variance, against the exact ∇J.

An on-policy run gives the policies; responses come from its version 0; the current policy is some updates later.
The moments are means over many independent update batches, with the bias of squared means taken out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gmc.lab.arms import Arm
from gmc.lab.toy.rules import RuleOverRuns
from gmc.lab.toy.sampled import Sampled
from gmc.lab.toy.schedule import make_schedule
from gmc.lab.toy.task import PROMPTS, Task, make_tasks
from gmc.lab.toy.train import Plan, Runs

GROUPS, GROUP_SIZE, BLOCK = 8, 8, 100
STREAM = 13


@dataclass(frozen=True)
class Step:
    """A rule on data of one age, mean over seeds. cosine: of the rule's mean gradient and ∇J; scale: ⟨∇J, E g⟩/‖∇J‖²;
    relative_variance: of a batch's gradient over ‖∇J‖²; quality: best gain of one step as a share of the noise-free one;
    spread: standard deviation of log ρ over responses."""

    age: int
    arm: str
    cosine: float
    scale: float
    relative_variance: float
    quality: float
    spread: float


def measure_steps(
    arms: Sequence[Arm],
    *,
    ages: Sequence[int],
    rate: float,
    seeds: int,
    batches: int,
    advance: Callable[[int], None] = lambda count: None,
) -> list[Step]:
    """Every arm at every age, in that order.

    rate: learning rate of the on-policy run; batches: update batches a seed, rounded up to whole blocks of `BLOCK`; advance:
    called with 1 for each finished seed, age and arm. Raises `UsageError` for a rule that needs what the model lacks.
    """
    found: dict[tuple[int, str], list[list[float]]] = {}
    for seed in range(seeds):
        task = make_tasks([seed])
        versions = _on_policy_versions(seed, max(ages), rate)
        for age in ages:
            slope_D = value_gradient(task, versions[age])
            for arm in arms:
                found.setdefault((age, arm.label), []).append(_moments(arm, task, versions, age, slope_D, seed, batches))
                advance(1)
    return [Step(age, arm.label, *np.mean(found[age, arm.label], axis=0).tolist()) for age in ages for arm in arms]


def value_gradient(task: Task, theta_RD: Tensor) -> Tensor:
    """∇J of the first run, D numbers, through the dynamic program."""
    leaf_RD = theta_RD.detach().clone().requires_grad_()
    (slope_RD,) = torch.autograd.grad(task.value(leaf_RD).sum(), leaf_RD)
    return slope_RD[0]


def _on_policy_versions(seed: int, updates: int, rate: float) -> list[Tensor]:
    """θ of versions 0 to `updates` of an on-policy run, whose rule does not matter: all ratios are 1."""
    plan = Plan(make_schedule("0", updates=updates, prompts=GROUPS, group_size=GROUP_SIZE, tokens=12), updates=updates)
    runs = Runs(Arm("is").build(), plan, [seed], [rate])
    versions = [runs.theta_RD]
    for update in range(updates):
        runs.update(update)
        versions.append(runs.theta_RD)
    return versions


def _moments(arm: Arm, task: Task, versions: list[Tensor], age: int, slope_D: Tensor, seed: int, batches: int) -> list[float]:
    blocks = -(-batches // BLOCK)
    total_D, squared, spreads = torch.zeros_like(slope_D), 0.0, []
    for block in range(blocks):
        rule = RuleOverRuns(arm.build(), BLOCK)
        sampled = _draw(task, versions, age, np.random.default_rng([STREAM, seed, block]))
        batch = sampled.batch(
            rule.needs,
            update=age,
            planned_updates=max(age, 1),
            lag_P=torch.full((GROUPS,), age),
            anchor=lambda lag=rule.anchor_lag: versions[max(0, age - lag)].expand(BLOCK, -1),  # type: ignore[misc]
        )
        step = rule.step(batch, BLOCK, sampled.gradient)
        gradient_RD = step.gradient_RD * task.policy.tokens  # of the sum over tokens, so that plain weighting is unbiased
        if step.scale_R is not None and step.active_R is not None:
            gradient_RD = gradient_RD * (step.scale_R * step.active_R)[:, None]
        total_D = total_D + gradient_RD.sum(0)
        squared += float(gradient_RD.square().sum())
        spreads.append(float(sampled.spread_R.mean()))
    return [*_summary(total_D, squared, blocks * BLOCK, slope_D), float(np.mean(spreads))]


def _draw(task: Task, versions: list[Tensor], age: int, draw: Any) -> Sampled:
    rows = task.repeat(BLOCK)
    old_RD, new_RD = versions[0].expand(BLOCK, -1), versions[age].expand(BLOCK, -1)
    prompt_RP = torch.from_numpy(draw.integers(0, PROMPTS, (BLOCK, GROUPS)))
    uniforms_RPGT = torch.from_numpy(draw.random((BLOCK, GROUPS, GROUP_SIZE, task.policy.tokens)))
    return Sampled.draw(rows, new_RD, lambda prompts: task.policy.log_table(old_RD, prompts), prompt_RP, uniforms_RPGT)


def _summary(total_D: Tensor, squared: float, count: int, slope_D: Tensor) -> list[float]:
    """Cosine, scale, relative variance and quality from the sum of the gradients and of their squares."""
    mean_D, length = total_D / count, float(slope_D @ slope_D)
    variance = (squared / count - float(mean_D @ mean_D)) * count / (count - 1)
    mean = float(mean_D @ mean_D) - variance / count  # ‖E g‖², without the part that is noise
    along = float(mean_D @ slope_D)
    cosine = along / (max(mean, 1e-300) * length) ** 0.5
    return [cosine, along / length, variance / length, along**2 / (length * max(mean + variance, 1e-300))]
