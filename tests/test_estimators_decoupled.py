"""a3po and decoupled-ppo against literal float64 references, and the identities that tie them to other rules."""

import math
import statistics
from dataclasses import replace

import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.estimators.batch import Need
from gmc.estimators.registry import build_estimator
from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit


def normalized(rewards):
    if max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    mean, spread = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (spread + 1e-6) for reward in rewards]


def clipped_weight(log_u, advantage, epsilon):
    """u where the PPO minimum takes the unclipped branch, else 0."""
    if (advantage > 0 and log_u > math.log(1 + epsilon)) or (advantage < 0 and log_u < math.log(1 - epsilon)):
        return 0.0
    return math.exp(log_u)


def token_gradient(batch, weight):
    """weight(row, t, advantage) · advantage at every response token."""
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    for row in range(batch.logp_BT.shape[0]):
        advantage = normalized(batch.rewards_PG[row // batch.group_size].tolist())[row % batch.group_size]
        for t in range(int(batch.mask_BT[row].sum())):
            gradient[row, t] = weight(row, t, advantage) * advantage
    return gradient


def a3po_reference(batch, epsilon, cap=math.inf):
    def weight(row, t, advantage):
        log_w = float(batch.logp_BT.detach()[row, t] - batch.behavior_logp_BT[row, t])
        lag = float(batch.lag_BT[row, t])
        alpha = 1 / lag if lag >= 1 else 1.0
        log_outer = (1 - alpha) * log_w
        if abs(log_w) > 20 or math.exp(log_outer) > cap:
            return 0.0
        return math.exp(log_outer) * clipped_weight(alpha * log_w, advantage, epsilon)

    return token_gradient(batch, weight)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_a3po_equals_the_reference(seed, spread):
    batch = random_batch(seed=seed, group_size=6, spread=spread)
    gradient = run_stages(build_estimator("a3po"), batch).gradient_BT
    torch.testing.assert_close(gradient, a3po_reference(batch, 0.2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a3po_takes_each_token_at_its_own_lag(seed):
    """Lags that fall along a response, as when versions change while it is sampled."""
    batch = random_batch(seed=seed, group_size=6, spread=2.0)
    rows, width = batch.logp_BT.shape
    falling_BT = torch.arange(width, 0, -1).expand(rows, width).to(batch.lag_BT.dtype) - 1
    mixed = replace(batch, brought={**batch.brought, Need.LAGS: falling_BT})
    oldest = replace(batch, brought={**batch.brought, Need.LAGS: falling_BT[:, :1].expand(rows, width)})
    gradient = run_stages(build_estimator("a3po"), mixed).gradient_BT
    torch.testing.assert_close(gradient, a3po_reference(mixed, 0.2), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(gradient, run_stages(build_estimator("a3po"), oldest).gradient_BT)


def test_the_capped_outer_factor_equals_the_reference():
    batch = random_batch(seed=3, group_size=6, spread=2.0)
    gradient = run_stages(build_estimator("a3po", {"outer_cap": 3.0, "epsilon": 0.3}), batch).gradient_BT
    expected = a3po_reference(batch, 0.3, cap=3.0)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)
    assert (a3po_reference(batch, 0.3) != expected).any()
    check_estimator(type(build_estimator("a3po")), {"outer_cap": 3.0})


def single(log_w, lag, reward_first=1.0):
    logs = torch.tensor([[log_w], [0.0]], dtype=torch.float64)
    lags = torch.full((2, 1), float(lag), dtype=torch.float64)
    rewards = torch.tensor([[reward_first, 1.0 - reward_first]], dtype=torch.float64)
    return make_batch(logs, rewards, brought={Need.LAGS: lags})


@examples(80)
@given(st.floats(-8, 8), st.integers(0, 300))
def test_a3po_is_token_importance_weighting_exactly_inside_the_widened_bounds(log_w, lag):
    batch = single(log_w, lag)
    outcome = run_stages(build_estimator("a3po"), batch)
    weight = float(outcome.gradient_BT[0, 0] / outcome.advantages_PG[0, 0])
    edge = max(1, lag) * math.log(1.2)
    if abs(log_w - edge) > 1e-9:
        assert weight == pytest.approx(0.0 if log_w > edge else math.exp(log_w), rel=1e-9)


@pytest.mark.parametrize("lag", [0, 1])
def test_a3po_at_lag_0_and_1_is_ppo_against_the_behavior_policy(lag):
    batch = random_batch(seed=1, group_size=6, spread=0.5)
    lags = torch.full_like(batch.logp_BT, float(lag)).detach()
    batch = replace(batch, brought={**batch.brought, Need.LAGS: lags})
    ppo = run_stages(build_estimator("grpo"), batch.with_advantages(run_stages(build_estimator("a3po"), batch).advantages_PG))
    torch.testing.assert_close(run_stages(build_estimator("a3po"), batch).gradient_BT, ppo.gradient_BT)


def test_at_a_delay_of_128_the_clip_lets_ratios_of_ten_billion_through():
    outcome = run_stages(build_estimator("a3po", {"epsilon": 0.2}), single(19.9, 128))
    assert float(outcome.gradient_BT[0, 0]) > 1e8
    capped = run_stages(build_estimator("a3po", {"outer_cap": 5.0}), single(19.9, 128))
    assert float(capped.gradient_BT[0, 0]) == 0.0


def decoupled_reference(batch, epsilon):
    def weight(row, t, advantage):
        now, behavior = float(batch.logp_BT.detach()[row, t]), float(batch.behavior_logp_BT[row, t])
        anchor = float(batch.anchor_logp_BT[row, t])
        return math.exp(anchor - behavior) * clipped_weight(now - anchor, advantage, epsilon)

    return token_gradient(batch, weight)


@pytest.mark.parametrize("seed", range(4))
def test_decoupled_ppo_equals_the_reference(seed):
    batch = random_batch(seed=seed, group_size=6, spread=1.0)
    gradient = run_stages(build_estimator("decoupled-ppo"), batch).gradient_BT
    torch.testing.assert_close(gradient, decoupled_reference(batch, 0.2), rtol=1e-9, atol=1e-12)


def test_decoupled_ppo_with_a_lag_of_0_is_token_importance_weighting():
    batch = random_batch(seed=7, group_size=6, spread=2.0)
    brought = {**batch.brought, Need.ANCHOR_LOGP: batch.logp_BT.detach().clone()}
    batch = replace(batch, brought=brought)
    gradient = run_stages(build_estimator("decoupled-ppo"), batch).gradient_BT

    def weight(row, t, _):
        return math.exp(float(batch.logp_BT.detach()[row, t] - batch.behavior_logp_BT[row, t]))

    torch.testing.assert_close(gradient, token_gradient(batch, weight), rtol=1e-9, atol=1e-12)


def test_decoupled_ppo_with_the_behavior_policy_as_anchor_is_ppo():
    batch = random_batch(seed=8, group_size=6, spread=0.5)
    brought = {**batch.brought, Need.ANCHOR_LOGP: batch.behavior_logp_BT}
    batch = replace(batch, brought=brought)
    ours = run_stages(build_estimator("decoupled-ppo"), batch)
    ppo = run_stages(build_estimator("grpo"), batch.with_advantages(ours.advantages_PG))
    torch.testing.assert_close(ours.gradient_BT, ppo.gradient_BT)


def test_the_anchor_lag_is_what_the_setting_says():
    assert build_estimator("decoupled-ppo", {"anchor_lag": 4}).anchor_lag == 4
