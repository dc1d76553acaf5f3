"""The KL penalty to the initial policy: its value and gradient against plain floats, and what a rule declares with it."""

import math

import pytest
import torch

from gmc.estimators.batch import Need
from gmc.estimators.errors import EstimatorError
from gmc.estimators.kl import k3
from gmc.estimators.registry import build_estimator
from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit

RULES = ["grpo", "tic"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_the_penalty_adds_its_own_gradient_to_the_rules(rule, spread):
    batch = random_batch(seed=7, group_size=5, spread=spread)
    plain = run_stages(build_estimator(rule), batch)
    found = run_stages(build_estimator(rule, {"kl": 0.3}), batch)
    total = tokens = 0.0
    for row in range(batch.logp_BT.shape[0]):
        for t in range(int(batch.mask_BT[row].sum())):
            u = float(batch.reference_logp_BT[row, t] - batch.logp_BT.detach()[row, t])
            pull = math.exp(u) - 1 if abs(u) <= 20 else 0.0
            expected = float(plain.gradient_BT[row, t]) + 0.3 * pull
            assert float(found.gradient_BT[row, t]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
            u = max(-20.0, min(20.0, u))
            total, tokens = total + math.exp(u) - u - 1, tokens + 1
    assert found.metrics["kl"] == pytest.approx(total / tokens, rel=1e-9)
    assert "kl" not in plain.metrics


def test_k3_is_zero_at_the_reference_and_positive_on_both_sides():
    logs = torch.tensor([[0.0, 0.7], [-0.7, 30.0]], dtype=torch.float64)
    batch = make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    at_behavior = make_batch(logs, batch.rewards_PG, brought={Need.REFERENCE_LOGP: batch.behavior_logp_BT})
    assert not k3(batch).any()
    expected = [[0.0, math.exp(-0.7) + 0.7 - 1], [math.exp(0.7) - 0.7 - 1, math.exp(-20) + 20 - 1]]
    for found, wanted in zip(k3(at_behavior).tolist(), expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_the_contract_holds_with_a_penalty_and_its_declarations_follow_the_coefficient(rule):
    check_estimator(type(build_estimator(rule)), {"kl": 0.1})
    without, with_penalty = build_estimator(rule), build_estimator(rule, {"kl": 0.1})
    assert without.needs == {Need.BEHAVIOR_LOGP}
    assert with_penalty.needs == {Need.BEHAVIOR_LOGP, Need.REFERENCE_LOGP}
    assert (without.equal_rewards_vanish, with_penalty.equal_rewards_vanish) == (True, False)
    assert not with_penalty.bounded
    with pytest.raises(EstimatorError, match=r"kl: -0\.1 is not allowed; allowed: a number ≥ 0"):
        build_estimator(rule, {"kl": -0.1})


def test_tic_takes_its_other_settings_beside_the_penalty():
    rule = build_estimator("tic", {"kl": 0.1, "epsilon": "auto", "baseline": "weighted"})
    assert rule.needs == set(Need) & {Need.BEHAVIOR_LOGP, Need.LAGS, Need.PLANNED_UPDATES, Need.REFERENCE_LOGP}
    assert set(run_stages(rule, random_batch()).metrics) == {"epsilon", "epsilon_raw", "kl"}
    check_estimator(type(rule), {"kl": 0.1, "epsilon": "auto"})


@pytest.mark.parametrize("rule", RULES)
def test_a_group_of_equal_rewards_is_still_pulled_back(rule):
    logs = torch.tensor([[0.5], [-0.5]], dtype=torch.float64)
    batch = make_batch(logs, torch.ones(1, 2, dtype=torch.float64))
    moved = make_batch(logs, batch.rewards_PG, brought={Need.REFERENCE_LOGP: batch.behavior_logp_BT})
    gradient = run_stages(build_estimator(rule, {"kl": 0.5}), moved).gradient_BT[:, 0].tolist()
    assert gradient == pytest.approx([0.5 * (math.exp(-0.5) - 1), 0.5 * (math.exp(0.5) - 1)], rel=1e-12)
