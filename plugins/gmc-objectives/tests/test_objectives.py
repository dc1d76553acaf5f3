"""dapo, dr-grpo, opmd, topr, vespo, kimi and dro against literal float64 references."""

import math
import statistics

import pytest
import torch
from gmc_objectives.dapo import DAPO
from gmc_objectives.dr_grpo import DrGRPO
from gmc_objectives.dro import DRO
from gmc_objectives.kimi import Kimi
from gmc_objectives.opmd import OPMD
from gmc_objectives.topr import TOPR
from gmc_objectives.vespo import VESPO
from pydantic import ValidationError

from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit

RULES = [DAPO, DrGRPO, OPMD, TOPR, VESPO, Kimi, DRO]


def build(rule, **chosen):
    return rule(rule.Settings(**chosen))


def centered(rewards):
    mean = statistics.fmean(rewards)
    return [0.0 if max(rewards) == min(rewards) else reward - mean for reward in rewards]


def normalized(rewards):
    return [value / (statistics.stdev(rewards) + 1e-6) for value in centered(rewards)]


def soft(rewards, tau=0.5):
    level = tau * math.log(math.fsum(math.exp(reward / tau) for reward in rewards) / len(rewards))
    return [0.0 if max(rewards) == min(rewards) else reward - level for reward in rewards]


def gradient_of(batch, weight, advantages):
    """weight(log ratios of the row, t, advantage) at every response token: the gradient itself, advantage included."""
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    for row in range(batch.logp_BT.shape[0]):
        advantage = advantages(batch.rewards_PG[row // batch.group_size].tolist())[row % batch.group_size]
        length = int(batch.mask_BT[row].sum())
        logs = (batch.logp_BT.detach()[row, :length] - batch.behavior_logp_BT[row, :length]).tolist()
        for t in range(length):
            gradient[row, t] = weight(logs, t, advantage)
    return gradient


def ppo(low, high):
    def weight(logs, t, a):
        clipped = (a > 0 and logs[t] > math.log(high)) or (a < 0 and logs[t] < math.log(low))
        return 0.0 if clipped or abs(logs[t]) > 20 or a == 0 else math.exp(logs[t]) * a

    return weight


def clamp(value):
    return max(-20.0, min(20.0, value))


def vespo(logs, t, a):
    log = clamp(math.fsum(logs))
    k, decay = (2.0, 3.0) if a >= 0 else (3.0, 2.0)
    return math.exp(k * log + decay * (1 - math.exp(log))) * a


CASES = [
    (DAPO, {}, ppo(0.8, 1.28), normalized),
    (DrGRPO, {}, ppo(0.8, 1.2), centered),
    (OPMD, {}, lambda logs, t, a: a / 2, centered),
    (OPMD, {"tau": 0.5, "baseline": "log-mean-exp"}, lambda logs, t, a: a / 1.5, soft),
    (TOPR, {}, lambda logs, t, a: a if a > 0 else math.exp(min(0.0, math.fsum(logs))) * a, centered),
    (TOPR, {"level": "token"}, lambda logs, t, a: a if a > 0 else math.exp(min(0.0, logs[t])) * a, centered),
    (VESPO, {}, vespo, normalized),
    (Kimi, {}, lambda logs, t, a: a - 0.1 * clamp(math.fsum(logs)), centered),
    (DRO, {"beta": 0.3}, lambda logs, t, a: a - 0.3 * clamp(logs[t]), normalized),
]


@pytest.mark.parametrize("spread", [0.2, 2.0, 100.0])
@pytest.mark.parametrize(("rule", "chosen", "weight", "advantages"), CASES)
def test_gradient_equals_the_reference(rule, chosen, weight, advantages, spread):
    batch = random_batch(seed=6, group_size=6, spread=spread)
    gradient = run_stages(build(rule, **chosen), batch).gradient_BT
    torch.testing.assert_close(gradient, gradient_of(batch, weight, advantages), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rule", RULES)
def test_the_contract(rule):
    check_estimator(rule)


@pytest.mark.parametrize(("rule", "chosen"), [(TOPR, {"level": "token"}), (OPMD, {"tau": 0.5, "baseline": "log-mean-exp"})])
def test_the_contract_with_other_settings(rule, chosen):
    check_estimator(rule, chosen)


def test_vespo_takes_the_mean_over_all_tokens_as_its_authors_do():
    assert build(VESPO).normalizer == "token-mean"


def test_opmd_ignores_where_responses_come_from():
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    near, far = (make_batch(torch.full((2, 3), level, dtype=torch.float64), rewards) for level in (0.0, 5.0))
    assert torch.equal(run_stages(build(OPMD), near).gradient_BT, run_stages(build(OPMD), far).gradient_BT)


def test_vespos_kernel_is_largest_at_k_over_lambda():
    logs = torch.linspace(-3, 2, 2001, dtype=torch.float64)[:, None]
    rewards = torch.tensor([[1.0, 0.0]] * 1001, dtype=torch.float64)[:, :2].reshape(-1)[:2001]
    weights = [math.exp(2 * log - 3 * math.expm1(log)) for log in logs[:, 0].tolist()]
    assert math.exp(logs[weights.index(max(weights)), 0]) == pytest.approx(2 / 3, rel=1e-2)
    batch = make_batch(logs[:2000], rewards[:2000].reshape(1000, 2))
    outcome = run_stages(build(VESPO), batch)
    ours = outcome.gradient_BT[::2, 0] / outcome.advantages_PG[:, 0]
    torch.testing.assert_close(ours, torch.tensor(weights[:2000:2], dtype=torch.float64), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [Kimi, DRO])
def test_the_pull_back_stays_when_all_rewards_are_equal_and_points_to_the_behavior_policy(rule):
    batch = make_batch(torch.tensor([[2.0], [-2.0]], dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64))
    gradient = run_stages(build(rule), batch).gradient_BT[:, 0]
    assert gradient[0] < 0 < gradient[1]


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        (DAPO, {"epsilon_low": 1}),
        (DrGRPO, {"epsilon": 0}),
        (OPMD, {"tau": 0}),
        (OPMD, {"baseline": "median"}),
        (TOPR, {"level": "group"}),
        (VESPO, {"k_positive": 0}),
        (Kimi, {"tau": -1}),
        (DRO, {"beta": 0}),
    ],
)
def test_bad_settings_are_refused(rule, chosen):
    with pytest.raises(ValidationError):
        build(rule, **chosen)
