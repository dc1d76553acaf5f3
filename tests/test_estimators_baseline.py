"""The setting `baseline` of the trajectory rules: the ratio-weighted leave-one-out advantage against literal loops."""

import itertools
import math

import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.estimators.advantages import weighted_leave_one_out
from gmc.estimators.registry import build_estimator
from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit

RULES = ["gmc", "tic", "truncated", "group-truncated", "snis", "is", "token-gmc"]


def reference_advantages(rewards, logs):
    """R_i minus the others' mean reward, each weighing exp(log) beside the largest of the others."""
    found = []
    for i, reward in enumerate(rewards):
        others = [j for j in range(len(rewards)) if j != i]
        largest = max(logs[j] for j in others)
        weights = [math.exp(logs[j] - largest) for j in others]
        mean = math.fsum(w * rewards[j] for w, j in zip(weights, others, strict=True)) / math.fsum(weights)
        found.append(reward - mean)
    return found


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("spread", [0.3, 2.0, 100.0])
def test_the_weighted_baseline_equals_the_reference(name, spread):
    batch = random_batch(seed=4, groups=4, group_size=6, spread=spread)
    found = run_stages(build_estimator(name, {"baseline": "weighted"}), batch).advantages_PG
    for group in range(batch.groups):
        logs = []
        for row in range(group * 6, group * 6 + 6):
            length = int(batch.mask_BT[row].sum())
            logs.append(math.fsum((batch.logp_BT.detach() - batch.behavior_logp_BT)[row, :length].tolist()))
        expected = reference_advantages(batch.rewards_PG[group].tolist(), logs)
        assert found[group].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@examples(60)
@given(st.lists(st.tuples(st.floats(-900, 900), st.floats(-3, 3)), min_size=2, max_size=8))
def test_any_ratios_and_rewards_equal_the_reference(pairs):
    logs, rewards = zip(*pairs, strict=True)
    found = weighted_leave_one_out(torch.tensor([rewards], dtype=torch.float64), torch.tensor([logs], dtype=torch.float64))
    assert found[0].tolist() == pytest.approx(reference_advantages(rewards, logs), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", RULES)
def test_the_weighted_baseline_keeps_the_contract_and_changes_the_advantages_alone(name):
    check_estimator(type(build_estimator(name)), {"baseline": "weighted"})
    batch = random_batch(seed=1, group_size=5)
    fixed = batch.with_advantages(torch.randn(3, 5, dtype=torch.float64))
    plain, weighted = (run_stages(build_estimator(name, {"baseline": one}), fixed) for one in ("loo", "weighted"))
    assert torch.equal(plain.gradient_BT, weighted.gradient_BT)


@pytest.mark.parametrize("name", RULES)
def test_without_being_asked_for_the_baseline_is_plain_leave_one_out(name):
    outcome = run_stages(build_estimator(name), random_batch(seed=1, group_size=5))
    for rewards, found in zip(
        random_batch(seed=1, group_size=5).rewards_PG.tolist(), outcome.advantages_PG.tolist(), strict=True
    ):
        assert found == pytest.approx([reward - (math.fsum(rewards) - reward) / 4 for reward in rewards], abs=1e-12)


def test_equal_ratios_give_leave_one_out():
    batch = random_batch(seed=2, group_size=5, on_policy=True)
    plain, weighted = (run_stages(build_estimator("gmc", {"baseline": one}), batch) for one in ("loo", "weighted"))
    torch.testing.assert_close(weighted.advantages_PG, plain.advantages_PG, rtol=1e-12, atol=1e-12)


def test_a_group_of_one_has_no_others():
    with pytest.raises(ValueError, match="at least 2"):
        weighted_leave_one_out(torch.ones(3, 1), torch.zeros(3, 1))


@pytest.mark.parametrize("baseline", ["loo", "weighted"])
def test_plain_importance_weighting_is_unbiased_under_either_baseline(baseline):
    """All 27 groups of three one-token responses, each with its probability: the mean gradient in the logits is ∇J."""
    behavior, current, rewards = [0.5, 0.3, 0.2], [0.15, 0.25, 0.6], [1.0, 0.0, 0.4]
    groups = list(itertools.product(range(3), repeat=3))
    logs = torch.tensor([[math.log(current[y] / behavior[y])] for group in groups for y in group], dtype=torch.float64)
    scored = torch.tensor([[rewards[y] for y in group] for group in groups], dtype=torch.float64)
    weights = run_stages(build_estimator("is", {"baseline": baseline}), make_batch(logs, scored)).gradient_BT.reshape(-1, 3)
    mean = math.fsum(p * reward for p, reward in zip(current, rewards, strict=True))
    for k in range(3):
        found = math.fsum(
            math.prod(behavior[y] for y in group) * weight * ((y == k) - current[k]) / 3
            for group, row in zip(groups, weights.tolist(), strict=True)
            for y, weight in zip(group, row, strict=True)
        )
        assert found == pytest.approx(current[k] * (rewards[k] - mean), abs=1e-12)
