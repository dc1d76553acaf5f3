"""epsilon=auto: the schedule, its state, and what it logs."""

import math
from dataclasses import replace

import pytest
import torch

from gmc.estimators.batch import Need
from gmc.estimators.registry import build_estimator
from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit

RULES = ["gmc", "tic", "truncated", "group-truncated", "token-gmc"]


def at_delay(delay, updates, update=0):
    ones = torch.ones(8, 1, dtype=torch.float64)
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 2, dtype=torch.float64)
    brought = {Need.LAGS: delay * ones, Need.PLANNED_UPDATES: torch.tensor(updates)}
    return make_batch(3 * ones, rewards, brought=brought, update=update)


@pytest.mark.parametrize("name", RULES)
def test_the_contract_holds_with_auto(name):
    check_estimator(type(build_estimator(name)), {"epsilon": "auto"})


@pytest.mark.parametrize("epsilon", [-0.999, -0.5, 0.0])
@pytest.mark.parametrize("name", [name for name in RULES if name != "tic"])
def test_the_contract_holds_below_a_cap_of_one_and_the_cap_is_then_the_on_policy_weight(name, epsilon):
    rule = build_estimator(name, {"epsilon": epsilon})
    assert rule.on_policy_weight == 1 + epsilon
    check_estimator(type(rule), {"epsilon": epsilon})


@pytest.mark.parametrize("name", RULES)
def test_above_it_the_on_policy_weight_is_one(name):
    for epsilon in (0.0, 0.28, 30.0, "auto"):
        assert build_estimator(name, {"epsilon": epsilon}).on_policy_weight == 1


def test_tic_keeps_every_on_policy_response_at_its_lowest_cap():
    check_estimator(type(build_estimator("tic")), {"epsilon": 0})


@pytest.mark.parametrize(("delay", "updates"), [(1, 100), (64, 800), (512, 800)])
def test_a_constant_delay_gives_the_stated_formula(delay, updates):
    rule = build_estimator("gmc", {"epsilon": "auto", "epsilon_k": 0.5})
    metrics = run_stages(rule, at_delay(delay, updates)).metrics
    assert metrics["epsilon_raw"] == pytest.approx(0.5 * delay ** (4 / 7) * updates ** (-3 / 14))
    assert metrics["epsilon"] == metrics["epsilon_raw"]


def test_the_default_k_gives_the_papers_constant_at_delay_128_and_800_updates():
    metrics = run_stages(build_estimator("gmc", {"epsilon": "auto"}), at_delay(128, 800)).metrics
    assert metrics["epsilon"] == pytest.approx(0.28, abs=5e-4)


def test_the_limit_acts_on_the_used_value_only():
    rule = build_estimator("tic", {"epsilon": "auto", "epsilon_k": 5.0, "epsilon_limit": True})
    metrics = run_stages(rule, at_delay(128, 800)).metrics
    assert metrics["epsilon"] == 1.0
    assert metrics["epsilon_raw"] > 1.0


def test_no_delay_counts_as_a_delay_of_one():
    rule = build_estimator("gmc", {"epsilon": "auto"})
    assert run_stages(rule, at_delay(0, 800)).metrics["epsilon"] == pytest.approx(0.0733 * 800 ** (-3 / 14))


def test_the_moment_runs_over_all_delays_seen_and_counts_a_batch_once():
    rule = build_estimator("gmc", {"epsilon": "auto", "epsilon_k": 1.0})
    for update, delay in enumerate([3, 5, 9]):
        batch = at_delay(delay, 100, update)
        run_stages(rule, batch)
        metrics = run_stages(rule, batch).metrics
    moment = (3**4 + 5**4 + 9**4) / 3
    assert metrics["epsilon_raw"] == pytest.approx(moment ** (1 / 7) * 100 ** (-3 / 14))


def test_an_empty_response_has_no_delay():
    batch = at_delay(4, 100)
    mask = batch.mask_BT.clone()
    mask[0] = False
    lags = batch.lag_BT.clone()
    lags[0] = 1000.0
    batch = replace(batch, mask_BT=mask, brought={**batch.brought, Need.LAGS: lags})
    rule = build_estimator("gmc", {"epsilon": "auto", "epsilon_k": 1.0})
    assert run_stages(rule, batch).metrics["epsilon_raw"] == pytest.approx(4 ** (4 / 7) * 100 ** (-3 / 14))


@pytest.mark.parametrize("name", RULES)
def test_the_schedules_epsilon_is_the_one_applied(name):
    rule = build_estimator(name, {"epsilon": "auto"})
    batch = at_delay(128, 800)
    outcome = run_stages(rule, batch)
    constant = build_estimator(name, {"epsilon": outcome.metrics["epsilon"]})
    assert torch.equal(outcome.gradient_BT, run_stages(constant, batch).gradient_BT)


def test_a_resumed_schedule_goes_on_where_it_was():
    rule = build_estimator("gmc", {"epsilon": "auto"})
    for update, delay in enumerate([2, 7]):
        run_stages(rule, at_delay(delay, 100, update))
    resumed = build_estimator("gmc", {"epsilon": "auto"})
    resumed.load_state_dict(rule.state_dict())
    for one in (rule, resumed):
        run_stages(one, at_delay(11, 100, 2))
    batch = at_delay(11, 100, 2)
    assert rule.metrics(batch) == resumed.metrics(batch)
    with pytest.raises(ValueError, match="keeps"):
        resumed.load_state_dict({"delay_count": torch.tensor(1)})


def test_a_constant_epsilon_keeps_no_state_and_asks_for_no_lags():
    rule = build_estimator("gmc", {"epsilon": 0.4})
    assert rule.state_dict() == {}
    assert rule.needs == {Need.BEHAVIOR_LOGP}
    assert rule.scope == "group"
    assert run_stages(rule, random_batch(seed=0)).metrics == {}
    assert math.isclose(rule.epsilon(random_batch(seed=0)), 0.4)
