"""grpo against a literal float64 reference that reads the clipping cases off one by one."""

import math

import pytest
import torch

from gmc.estimators.advantages import group_normalized
from gmc.estimators.base import leave_one_out
from gmc.estimators.registry import build_estimator
from gmc.testing import make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit


def reference_gradient(batch, low, high):
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    for row in range(batch.logp_BT.shape[0]):
        rewards = batch.rewards_PG[row // batch.group_size].double().tolist()
        advantage = rewards[row % batch.group_size] - math.fsum(rewards) / len(rewards)
        if max(rewards) == min(rewards):
            continue
        for t in range(int(batch.mask_BT[row].sum())):
            log = float(batch.logp_BT.detach()[row, t].double() - batch.behavior_logp_BT[row, t].double())
            clipped = (advantage > 0 and log > math.log(high)) or (advantage < 0 and log < math.log(low))
            gradient[row, t] = 0.0 if clipped or abs(log) > 20 else math.exp(log) * advantage
    return gradient


@pytest.mark.parametrize("seed", range(5))
def test_gradient_equals_the_reference(seed):
    batch = random_batch(seed=seed, groups=4, group_size=8, spread=3.0)
    gradient = run_stages(build_estimator("grpo"), batch).gradient_BT
    torch.testing.assert_close(gradient, reference_gradient(batch, 0.8, 1.2), rtol=1e-10, atol=1e-12)


def test_other_clip_ranges_equal_the_reference():
    batch = random_batch(seed=9, groups=4, group_size=8, spread=0.4)
    gradient = run_stages(build_estimator("grpo", {"epsilon_low": 0.1, "epsilon_high": 0.5}), batch).gradient_BT
    torch.testing.assert_close(gradient, reference_gradient(batch, 0.9, 1.5), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_ratios_of_800_are_flat_and_finite(dtype):
    logs = torch.tensor([[800.0, 0.0], [-800.0, 0.1], [800.0, -0.1], [19.0, -19.0]], dtype=dtype)
    batch = make_batch(logs, torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=dtype))
    gradient = run_stages(build_estimator("grpo"), batch).gradient_BT
    torch.testing.assert_close(gradient.double(), reference_gradient(batch, 0.8, 1.2), rtol=1e-4, atol=1e-12)
    assert gradient[2, 0] == 0
    assert gradient[3, 0] < -1e6


def test_a_negative_advantage_keeps_a_large_ratio():
    batch = make_batch(torch.tensor([[0.0], [3.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    gradient = run_stages(build_estimator("grpo"), batch).gradient_BT
    torch.testing.assert_close(gradient[1, 0], torch.tensor(-0.5 * math.exp(3.0), dtype=torch.float64))


@pytest.mark.parametrize("advantage", [leave_one_out, group_normalized])
def test_a_group_of_one_has_no_relative_advantage(advantage):
    with pytest.raises(ValueError, match="at least 2 responses a group"):
        advantage(torch.ones(3, 1))
