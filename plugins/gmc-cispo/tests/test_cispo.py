"""CISPO against a literal float64 reference."""

import math
import statistics

import pytest
import torch
from gmc_cispo.cispo import CISPO
from pydantic import ValidationError

from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit


def reference_gradient(batch, cap, floor):
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    for row in range(batch.logp_BT.shape[0]):
        rewards = batch.rewards_PG[row // batch.group_size].tolist()
        if max(rewards) == min(rewards):
            continue
        centered = rewards[row % batch.group_size] - statistics.fmean(rewards)
        advantage = centered / (statistics.stdev(rewards) + 1e-6)
        for t in range(int(batch.mask_BT[row].sum())):
            log_ratio = float(batch.logp_BT.detach()[row, t] - batch.behavior_logp_BT[row, t])
            gradient[row, t] = max(floor, math.exp(min(log_ratio, math.log(cap)))) * advantage
    return gradient


def build(**settings):
    return CISPO(CISPO.Settings(**settings))


@pytest.mark.parametrize("spread", [0.3, 3.0, 100.0])
@pytest.mark.parametrize(("cap", "floor"), [(5.0, 0.0), (1.2, 0.8), (2.0, 0.0)])
def test_gradient_equals_the_reference(spread, cap, floor):
    batch = random_batch(seed=1, group_size=6, spread=spread)
    gradient = run_stages(build(cap=cap, floor=floor), batch).gradient_BT
    torch.testing.assert_close(gradient, reference_gradient(batch, cap, floor), rtol=1e-9, atol=1e-12)


def test_the_contract():
    check_estimator(CISPO)
    check_estimator(CISPO, {"cap": 1.28, "floor": 0.8})


def test_no_token_is_ever_dropped():
    logs = torch.tensor([[900.0, 3.0], [-3.0, 0.0]], dtype=torch.float64)
    gradient = run_stages(build(), make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64))).gradient_BT
    assert (gradient != 0).all()


@pytest.mark.parametrize("settings", [{"cap": 0.5}, {"floor": 1.5}, {"floor": -0.1}, {"epsilon": 0.2}])
def test_bad_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        build(**settings)
