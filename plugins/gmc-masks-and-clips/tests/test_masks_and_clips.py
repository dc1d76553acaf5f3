"""sat, opsm, gmpo and carm against literal float64 references."""

import math
import statistics

import pytest
import torch
from gmc_masks_and_clips.carm import CARM
from gmc_masks_and_clips.gmpo import GMPO
from gmc_masks_and_clips.opsm import OPSM
from gmc_masks_and_clips.sat import SAT
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit

RULES = [SAT, OPSM, GMPO, CARM]


def build(rule, **chosen):
    return rule(rule.Settings(**chosen))


def rows_of(batch):
    """(row, advantage, token log-ratios) of every response."""
    for row in range(batch.logp_BT.shape[0]):
        rewards = batch.rewards_PG[row // batch.group_size].tolist()
        spread = statistics.stdev(rewards)
        advantage = (rewards[row % batch.group_size] - statistics.fmean(rewards)) / (spread + 1e-6) if spread else 0.0
        length = int(batch.mask_BT[row].sum())
        yield row, advantage, (batch.logp_BT.detach()[row, :length] - batch.behavior_logp_BT[row, :length]).tolist()


def gradient_of(batch, weight):
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    for row, advantage, logs in rows_of(batch):
        for t in range(len(logs)):
            gradient[row, t] = weight(logs, t, advantage) * advantage
    return gradient


def ppo(log, a, low=0.8, high=1.2):
    clipped = (a > 0 and log > math.log(high)) or (a < 0 and log < math.log(low))
    return 0.0 if clipped or abs(log) > 20 else math.exp(log)


def quantile(values, share):
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@pytest.mark.parametrize("spread", [0.1, 0.2, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_sat_equals_the_reference(spread, seed):
    batch = random_batch(seed=seed, group_size=6, spread=spread)
    q = quantile([abs(log) for _, _, logs in rows_of(batch) for log in logs], 0.9)

    def weight(logs, t, a):
        size = abs(logs[t])
        scale = q**2 / (q**2 + (size - q) ** 2) if size > q else 1.0
        low = 1 - 0.2 * (scale if logs[t] < 0 else 1.0)
        high = 1 + 0.2 * (scale if logs[t] > 0 else 1.0)
        return ppo(logs[t], a, low, high)

    torch.testing.assert_close(run_stages(build(SAT), batch).gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 500), st.floats(0.05, 3.0))
def test_sat_only_ever_removes_gradient_from_ppo(seed, spread):
    batch = random_batch(seed=seed, spread=spread)
    sat = run_stages(build(SAT), batch).gradient_BT
    plain = gradient_of(batch, lambda logs, t, a: ppo(logs[t], a))
    assert ((sat == 0) | torch.isclose(sat, plain, rtol=1e-9, atol=1e-12)).all()


@pytest.mark.parametrize("spread", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("delta", [1e-4, 0.5])
def test_opsm_equals_the_reference(spread, delta):
    batch = random_batch(seed=3, group_size=6, spread=spread)

    def weight(logs, t, a):
        return 0.0 if a < 0 and -math.fsum(logs) / len(logs) > delta else ppo(logs[t], a)

    gradient = run_stages(build(OPSM, delta=delta), batch).gradient_BT
    torch.testing.assert_close(gradient, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_gmpo_equals_the_reference(spread):
    batch = random_batch(seed=3, group_size=6, spread=spread)

    def weight(logs, t, a):
        clipped = [min(log, 0.4) if a > 0 else max(log, -0.4) for log in logs]
        outside = clipped[t] != logs[t]
        return 0.0 if outside else math.exp(math.fsum(clipped) / len(clipped))

    torch.testing.assert_close(run_stages(build(GMPO), batch).gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spread", [0.05, 0.12, 1.0, 100.0])
def test_carm_equals_the_reference(spread):
    batch = random_batch(seed=3, group_size=6, spread=spread)

    def weight(logs, t, a):
        drift = math.fsum(abs(log) for log in logs) / len(logs)
        return 0.0 if drift > math.log(1.1) else ppo(logs[t], a)

    torch.testing.assert_close(run_stages(build(CARM), batch).gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


def test_drift_up_and_down_cancels_for_the_geometric_mean_but_not_for_carm():
    logs = torch.tensor([[0.15, -0.15], [0.0, 0.0]], dtype=torch.float64)
    batch = make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert not run_stages(build(CARM), batch).gradient_BT[0].any()
    assert run_stages(build(OPSM), batch).gradient_BT[0].all()


def test_opsm_masks_negative_responses_only():
    logs = torch.tensor([[-0.1], [-0.1]], dtype=torch.float64)
    gradient = run_stages(build(OPSM), make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64))).gradient_BT
    assert gradient[0, 0] > 0
    assert gradient[1, 0] == 0


@pytest.mark.parametrize("rule", RULES)
def test_the_contract(rule):
    check_estimator(rule)


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [(SAT, {"quantile": 1}), (SAT, {"epsilon": 0}), (OPSM, {"delta": -1}), (GMPO, {"band": 0}), (CARM, {"tau": 1})],
)
def test_bad_settings_are_refused(rule, chosen):
    with pytest.raises(ValidationError):
        build(rule, **chosen)
