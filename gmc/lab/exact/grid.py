"""A grid of exact models: directions × drifts × group sizes × rules, each a mean over pairs of policies."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from pydantic import Field, model_validator

from gmc.config.file_kinds import EXACT
from gmc.errors import UsageError
from gmc.estimators.errors import EstimatorStageError
from gmc.lab.arms import Arm, arms_of, installed_arms, require_unique
from gmc.lab.exact.groups import all_groups_PG
from gmc.lab.exact.moments import Moments, Setting, exact_moments, refusal
from gmc.lab.exact.pairs import Direction, PolicyPair, draw_pairs
from gmc.lab.exact.policy import MOST_RESPONSES, TabularPolicy
from gmc.lab.study_file import Grid, ResultLines, rounded

KEYS = ("vocabulary", "tokens", "rewarded", "pairs", "seed", "lag", "direction", "drift", "group_size", "responses", "arm")
MEANS = ("relative_bias", "cosine", "scale", "relative_variance")


class ExactGrid(Grid):
    """One grid; every list is an axis."""

    command = EXACT
    vocabulary: int = Field(2, ge=2, description="V, ids of the vocabulary")
    tokens: int = Field(3, ge=1, description="T, tokens of every response")
    rewarded: list[int] = Field([1, 6], description="responses with reward 1, counted from 0 in lexicographic order")
    directions: list[Direction] = Field(
        ["uphill"], description="where the current policy lies: up the gradient of J, or random"
    )
    drifts: list[float] = Field([1.0, 2.0, 4.0], description="distance of the current policy from the behavior policy")
    group_sizes: list[int] = Field([8], description="G, responses a group")
    responses: int = Field(64, ge=2, description="responses an update, P·G: quality is that of P groups")
    pairs: int = Field(12, ge=1, description="pairs of policies that are averaged")
    seed: int = Field(3, ge=0, description="seed of the pairs, the same at every drift")
    lag: int = Field(64, ge=0, description="delay of every response, in updates, for rules that ask for it")
    rules: dict[str, dict[str, Any]] = Field({}, description="settings by rule, a list is an axis; none: every installed rule")

    @model_validator(mode="after")
    def _possible(self) -> "ExactGrid":
        count = self.vocabulary**self.tokens
        if count > MOST_RESPONSES:
            raise ValueError(f"{self.vocabulary}^{self.tokens} = {count:,} responses are more than {MOST_RESPONSES:,}")
        if not self.rewarded or not all(0 <= index < count for index in self.rewarded) or len(set(self.rewarded)) == count:
            raise ValueError(f"rewarded must name some of the responses 0 to {count - 1}, and not all")
        if min(self.group_sizes, default=0) < 2 or any(self.responses % size for size in self.group_sizes):
            raise ValueError(f"group_sizes must be divisors of responses = {self.responses}, at least 2")
        if min(self.drifts, default=-1) < 0:
            raise ValueError("drifts must be numbers of at least 0")
        return self

    @property
    def arms(self) -> list[Arm]:
        """The rules with their settings. Raises `UsageError` when one stands twice."""
        arms = arms_of(self.rules) if self.rules else installed_arms()
        require_unique(arms)
        return arms

    def cells(self) -> Iterator[dict[str, Any]]:
        """Every cell without its arm, in the order of computing."""
        shared = {key: getattr(self, key) for key in ("vocabulary", "tokens", "rewarded", "pairs", "seed", "lag", "responses")}
        for group_size in self.group_sizes:
            for direction in self.directions:
                for drift in self.drifts:
                    yield {**shared, "direction": direction, "drift": drift, "group_size": group_size}


def measurable(arms: list[Arm], *, strict: bool) -> tuple[list[Arm], dict[str, str]]:
    """The arms with exact moments, and why the others have none. strict: raise `UsageError` for the first such instead."""
    kept, refused = [], {}
    for arm in arms:
        reason = refusal(arm.build())
        if reason is None:
            kept.append(arm)
        elif strict:
            raise UsageError(f"estimator {arm.label} has no exact moments: {reason}")
        else:
            refused[arm.label] = reason
    return kept, refused


def run_grid(
    grid: ExactGrid, arms: list[Arm], lines: ResultLines, advance: Callable[[int, str], None]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A record a cell and arm, found in `lines` or computed and added; and why a rule that fails in a cell has none there.

    advance: told of pairs of policies that are done with, those of records that were found left out.
    """
    records, failed = [], {}
    policy = TabularPolicy(grid.vocabulary, grid.tokens)
    rewards_K = torch.zeros(len(policy.responses_KT), dtype=torch.float64)
    rewards_K[grid.rewarded] = 1
    rules = {arm.label: arm.build() for arm in arms}
    for cell in grid.cells():
        groups_PG, pairs = None, None
        for arm in arms:
            record = lines.find({**cell, "arm": arm.label})
            if record is None and arm.label not in failed:
                if groups_PG is None or pairs is None:
                    groups_PG = all_groups_PG(len(rewards_K), cell["group_size"])
                    pairs = draw_pairs(
                        policy, rewards_K, direction=cell["direction"], drift=cell["drift"], count=grid.pairs, seed=grid.seed
                    )
                moments: list[Moments] = []
                try:
                    for pair in pairs:
                        rule = copy.deepcopy(rules[arm.label])
                        moments.append(exact_moments(rule, policy, pair, rewards_K, groups_PG, Setting(lag=grid.lag)))
                        advance(1, f"drift {cell['drift']:g}, G = {cell['group_size']}, {arm.label}")
                except EstimatorStageError as error:
                    failed[arm.label] = str(error)
                    advance(len(pairs) - len(moments), "")
                else:
                    record = _record(cell, arm, moments, [_divergence(policy, pair) for pair in pairs])
                    lines.add(record)
            elif record is None:
                advance(grid.pairs, "")
            if record is not None:
                records.append(record)
    return records, failed


def count_pairs(grid: ExactGrid, arms: list[Arm], lines: ResultLines) -> tuple[int, int]:
    """Pairs of policies times arms, over all cells of a grid, and how many of them are found in `lines`."""
    cells = list(grid.cells())
    found = sum(lines.find({**cell, "arm": arm.label}) is not None for cell in cells for arm in arms)
    return grid.pairs * len(cells) * len(arms), grid.pairs * found


def _record(cell: Mapping[str, Any], arm: Arm, moments: list[Moments], distances: list[tuple[float, float]]) -> dict[str, Any]:
    prompts = cell["responses"] // cell["group_size"]
    quality = [rounded(one.quality(prompts)) for one in moments]
    means = {name: _mean([getattr(one, name) for one in moments]) for name in (*MEANS, "removed", "mass_second")}
    kl, ess = zip(*distances, strict=True)
    return {
        **cell,
        "arm": arm.label,
        "rule": arm.rule,
        "settings": dict(arm.settings),
        "kl": _mean(kl),
        "ess": _mean(ess),
        **means,
        "quality": _mean(quality),
        "quality_pairs": quality,
    }


def _mean(values: Any) -> float | None:
    """None when the rule has no such number."""
    return None if None in values else rounded(sum(values) / len(values))


def _divergence(policy: TabularPolicy, pair: PolicyPair) -> tuple[float, float]:
    """KL(current‖behavior) in nats, and the effective sample size of raw ratios as a share, 1/E_μ[ρ²]."""
    log_pi_K, log_mu_K = policy.logp_KT(pair.current_D).sum(-1), policy.logp_KT(pair.behavior_D).sum(-1)
    kl = float((log_pi_K.exp() * (log_pi_K - log_mu_K)).sum())
    return kl, 1 / float((2 * log_pi_K - log_mu_K).exp().sum())
