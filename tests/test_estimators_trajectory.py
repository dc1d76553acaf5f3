"""The trajectory rules and token-gmc against literal float64 references that loop over scalars in the log domain."""

import math

import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.estimators.registry import build_estimator
from gmc.testing import make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit

EPSILON = 0.28


def lse(values):
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(value - top) for value in values))


def leave_one_out(rewards):
    total = math.fsum(rewards)
    return [reward - (total - reward) / (len(rewards) - 1) for reward in rewards]


def reference_weights(name, logs, epsilon):
    """Weight of each response of one group, from its log trajectory ratios."""
    cap = math.log(1 + epsilon)
    if name == "gmc":
        log_alpha = min(0.0, cap - (lse(logs) - math.log(len(logs))))
        return [math.exp(log + log_alpha) for log in logs]
    if name == "tic":
        return [math.exp(log) if log <= cap else 0.0 for log in logs]
    if name == "truncated":
        return [math.exp(min(log, cap)) for log in logs]
    if name == "group-truncated":
        return [math.exp(min(log, log_level(logs, epsilon))) for log in logs]
    if name == "snis":
        return [math.exp(log - lse(logs) + math.log(len(logs))) for log in logs]
    assert name == "is"
    return [math.exp(max(-20.0, min(20.0, log))) for log in logs]


def log_level(logs, epsilon):
    """Where the ratios of a group are cut so that they average to 1+ε, by bisection; infinity where they average to less."""
    mass = (1 + epsilon) * len(logs)
    if lse(logs) <= math.log(mass):
        return math.inf
    low, high = math.log(1 + epsilon) - 1, math.log(mass)
    for _ in range(80):
        middle = (low + high) / 2
        full = math.fsum(math.exp(min(log, middle)) for log in logs) > mass
        low, high = (low, middle) if full else (middle, high)
    return (low + high) / 2


def reference_gradient(name, batch, epsilon):
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    size = batch.group_size
    for group in range(batch.groups):
        rewards = batch.rewards_PG[group].double().tolist()
        advantages = leave_one_out(rewards)
        logs = []
        for row in range(group * size, (group + 1) * size):
            length = int(batch.mask_BT[row].sum())
            differences = batch.logp_BT[row].double() - batch.behavior_logp_BT[row].double()
            logs.append(math.fsum(differences[:length].tolist()))
        for sample, weight in enumerate(reference_weights(name, logs, epsilon)):
            row = group * size + sample
            gradient[row, : int(batch.mask_BT[row].sum())] = weight * advantages[sample]
    return gradient


RULES = ["gmc", "tic", "truncated", "group-truncated", "snis", "is"]
SCALING = ["gmc", "truncated", "group-truncated"]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(5))
def test_gradient_equals_the_reference(name, seed):
    batch = random_batch(seed=seed, groups=4, group_size=8, spread=3 / math.sqrt(7))
    gradient = run_stages(build_estimator(name), batch).gradient_BT
    torch.testing.assert_close(gradient, reference_gradient(name, batch, EPSILON), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SCALING)
@pytest.mark.parametrize("epsilon", [-0.95, -0.5, 0.0, 3.0])
def test_any_cap_equals_the_reference_below_one_too(name, epsilon):
    for spread in (0.0, 1.0):
        batch = random_batch(seed=2, groups=5, group_size=8, spread=spread)
        gradient = run_stages(build_estimator(name, {"epsilon": epsilon}), batch).gradient_BT
        torch.testing.assert_close(gradient, reference_gradient(name, batch, epsilon), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_float32_equals_the_reference(name):
    batch = random_batch(seed=3, groups=4, group_size=8, spread=1.0, dtype=torch.float32)
    gradient = run_stages(build_estimator(name), batch).gradient_BT
    torch.testing.assert_close(gradient.double(), reference_gradient(name, batch, EPSILON), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_ratios_of_800_equal_the_reference(name, dtype):
    logs = torch.tensor([[800.0, -800.0, 799.0, 0.1], [-800.0, -800.0, -800.0, -799.0], [0.2, 800.0, 0.0, -1.0]], dtype=dtype)
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]], dtype=dtype)
    batch = make_batch(logs.reshape(-1, 1), rewards)
    gradient = run_stages(build_estimator(name), batch).gradient_BT
    assert torch.isfinite(gradient).all()
    rounding = 1e-3 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(gradient.double(), reference_gradient(name, batch, EPSILON), rtol=rounding, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [4, 8, 32])
def test_a_capped_groups_mean_weighted_ratio_is_the_cap(dtype, size):
    draw = torch.Generator().manual_seed(size)
    logs = 3 * torch.randn(200, size, generator=draw, dtype=dtype) - 2
    rewards = torch.zeros(200, size, dtype=dtype)
    rewards[:, 0] = 1
    batch = make_batch(logs.reshape(-1, 1), rewards)
    outcome = run_stages(build_estimator("gmc", {"epsilon": EPSILON}), batch)
    weighted = (outcome.gradient_BT[:, 0] / outcome.advantages_PG.reshape(-1)).reshape(200, size).mean(1)
    capped = logs.exp().mean(1) > 1 + EPSILON
    assert 50 < int(capped.sum()) < 200
    torch.testing.assert_close(weighted[capped], torch.full_like(weighted[capped], 1 + EPSILON), rtol=0, atol=1e-6)
    torch.testing.assert_close(weighted[~capped], logs.exp().mean(1)[~capped], rtol=1e-6, atol=0)


def test_both_forms_of_gmc_agree_and_the_cap_is_continuous():
    draw = torch.Generator().manual_seed(0)
    logs = 3 * torch.randn(300, 8, generator=draw, dtype=torch.float64)
    ratios = logs.exp()
    plain = ratios * torch.clamp((1 + EPSILON) / ratios.mean(1, keepdim=True), max=1.0)
    rewards = torch.zeros(300, 8, dtype=torch.float64)
    rewards[:, 0] = 1
    outcome = run_stages(build_estimator("gmc"), make_batch(logs.reshape(-1, 1), rewards))
    ours = (outcome.gradient_BT[:, 0] / outcome.advantages_PG.reshape(-1)).reshape(300, 8)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=0)
    at_cap = torch.full((2, 4), math.log(1 + EPSILON), dtype=torch.float64)
    at_cap[1] += 1e-13
    at_cap[0] -= 1e-13
    outcome = run_stages(build_estimator("gmc"), make_batch(at_cap.reshape(-1, 1), rewards[:2, :4]))
    below, above = outcome.gradient_BT.reshape(2, 4)
    torch.testing.assert_close(below, above, rtol=1e-12, atol=0)


def test_tic_loses_a_group_above_the_cap_and_gmc_does_not():
    batch = make_batch(torch.full((4, 1), 2.0, dtype=torch.float64), torch.tensor([[1.0, 0.0, 0.0, 1.0]], dtype=torch.float64))
    assert not run_stages(build_estimator("tic"), batch).gradient_BT.any()
    assert run_stages(build_estimator("gmc"), batch).gradient_BT.all()


def test_tic_drops_negative_advantages_above_the_cap_where_grpo_keeps_them():
    batch = make_batch(torch.tensor([[0.0], [3.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert run_stages(build_estimator("tic"), batch).gradient_BT[1, 0] == 0
    assert run_stages(build_estimator("grpo"), batch).gradient_BT[1, 0] < -10 * 0.5


def test_a_dropped_response_stays_in_the_denominator():
    alone = make_batch(torch.tensor([[0.0], [0.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    dropped = make_batch(torch.tensor([[0.0], [5.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    tic = build_estimator("tic")
    assert run_stages(tic, alone).gradient_BT[0, 0] == run_stages(tic, dropped).gradient_BT[0, 0]


def token_gmc_reference(batch, epsilon):
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    size = batch.group_size
    for group in range(batch.groups):
        advantages = leave_one_out(batch.rewards_PG[group].tolist())
        places = [(row, t) for row in range(group * size, (group + 1) * size) for t in range(int(batch.mask_BT[row].sum()))]
        logs = [float(batch.logp_BT.detach()[place] - batch.behavior_logp_BT[place]) for place in places]
        log_alpha = min(0.0, math.log(1 + epsilon) - (lse(logs) - math.log(len(logs))))
        for (row, t), log in zip(places, logs, strict=True):
            gradient[row, t] = math.exp(log + log_alpha) * advantages[row - group * size]
    return gradient


@pytest.mark.parametrize("epsilon", [EPSILON, -0.5])
@pytest.mark.parametrize("spread", [0.1, 1.0, 100.0])
def test_token_gmc_equals_the_reference(spread, epsilon):
    batch = random_batch(seed=1, groups=4, group_size=5, spread=spread)
    gradient = run_stages(build_estimator("token-gmc", {"epsilon": epsilon}), batch).gradient_BT
    torch.testing.assert_close(gradient, token_gmc_reference(batch, epsilon), rtol=1e-9, atol=1e-12)


def test_token_gmc_ignores_how_tokens_are_split_into_responses_of_equal_advantage():
    logs = torch.tensor([[0.5, -0.2, 1.0, 0.3]], dtype=torch.float64)
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    wide = make_batch(torch.cat([logs, logs]), rewards)
    gradient = run_stages(build_estimator("token-gmc"), wide).gradient_BT
    assert torch.allclose(gradient[0], -gradient[1])


@examples(60)
@given(st.lists(st.floats(-900, 900), min_size=2, max_size=9), st.floats(-0.9, 5.0))
def test_trajectory_rules_equal_the_reference_for_any_ratios(logs, epsilon):
    log_ratio = torch.tensor(logs, dtype=torch.float64)[:, None]
    rewards = torch.tensor([[1.0] + [0.0] * (len(logs) - 1)], dtype=torch.float64)
    batch = make_batch(log_ratio, rewards)
    for name in ("tic", "snis", *SCALING):
        rule = build_estimator(name, {} if name == "snis" else {"epsilon": abs(epsilon) if name == "tic" else epsilon})
        expected = reference_gradient(name, batch, abs(epsilon) if name == "tic" else epsilon)
        torch.testing.assert_close(run_stages(rule, batch).gradient_BT, expected, rtol=1e-9, atol=1e-12)
