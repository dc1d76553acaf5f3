import torch
from gmc.testing import check_estimator, make_batch, run_stages

from gmc_frozen_rule.rule import FrozenRule


def test_the_contract():
    check_estimator(FrozenRule)


def test_the_weights():
    log_ratio_BT = torch.tensor([[-1.0], [3.0]], dtype=torch.float64)
    outcome = run_stages(FrozenRule(), make_batch(log_ratio_BT, torch.tensor([[1.0, 0.0]], dtype=torch.float64)))
    weights = outcome.gradient_BT[:, 0] / outcome.advantages_PG[0]
    torch.testing.assert_close(weights, torch.tensor([-1.0, 0.6931471805599453], dtype=torch.float64).exp())
