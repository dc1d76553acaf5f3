"""vcpo: weights, baseline and step size against literal float64 references, and their identities."""

import math

import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.estimators.batch import Need
from gmc.estimators.registry import build_estimator
from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit


def log_rho(batch, row):
    length = int(batch.mask_BT[row].sum())
    return math.fsum((batch.logp_BT.detach()[row, :length] - batch.behavior_logp_BT[row, :length]).tolist())


def softmax(values):
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / math.fsum(powers) for power in powers]


def reference_gradient(batch, c, log_norms):
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    size = batch.group_size
    for group in range(batch.groups):
        rows = range(group * size, (group + 1) * size)
        weights = softmax([2 * log_rho(batch, row) + log_norms[row] for row in rows])
        rewards = batch.rewards_PG[group].tolist()
        baseline = math.fsum(weight * reward for weight, reward in zip(weights, rewards, strict=True))
        for row, reward in zip(rows, rewards, strict=True):
            weight = math.exp(min(log_rho(batch, row), math.log(c)))
            gradient[row, : int(batch.mask_BT[row].sum())] = weight * (reward - baseline)
    return gradient


@pytest.mark.parametrize("seed", range(4))
def test_gradient_equals_the_reference(seed):
    batch = random_batch(seed=seed, groups=4, group_size=6, spread=1.0)
    gradient = run_stages(build_estimator("vcpo"), batch).gradient_BT
    expected = reference_gradient(batch, 8.0, batch.log_score_norm_B.tolist())
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_the_cheap_proxy_equals_its_reference_and_needs_no_norms():
    batch = random_batch(seed=5, needs={Need.BEHAVIOR_LOGP})
    rule = build_estimator("vcpo", {"score_norms": "proxy", "c": 2})
    norms = []
    for row in range(batch.logp_BT.shape[0]):
        length = int(batch.mask_BT[row].sum())
        total = math.fsum((1 - math.exp(value)) ** 2 for value in batch.logp_BT.detach()[row, :length].tolist())
        norms.append(math.log(total) if total else -math.inf)
    torch.testing.assert_close(
        run_stages(rule, batch).gradient_BT, reference_gradient(batch, 2.0, norms), rtol=1e-9, atol=1e-12
    )
    check_estimator(type(rule), {"score_norms": "proxy"})


def test_the_proxy_is_a_lower_bound_on_the_squared_score_of_the_logits():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 9, generator=draw, dtype=torch.float64, requires_grad=True)
    logp = torch.log_softmax(logits, -1)[:, 3]
    (score,) = torch.autograd.grad(logp.sum(), logits)
    exact = (score**2).sum(-1)
    proxy = (1 - logp.detach().exp()) ** 2
    assert (proxy <= exact).all()
    assert (proxy >= exact / 2).all()


def make(logs, rewards=None):
    values = torch.tensor(logs, dtype=torch.float64)[:, None]
    rewards = torch.tensor([rewards or [1.0] + [0.0] * (len(logs) - 1)], dtype=torch.float64)
    return make_batch(values, rewards)


@pytest.mark.parametrize("rule", ["sqrt", "linear"])
@pytest.mark.parametrize("level", [-3.0, 0.0, 5.0])
def test_equal_weights_leave_the_rate_unchanged(rule, level):
    assert run_stages(build_estimator("vcpo", {"lr_rule": rule}), make([level] * 6)).learning_rate_scale == pytest.approx(1.0)


def test_one_dominating_weight_scales_by_the_root_of_the_batch():
    batch = make([700.0] + [-700.0] * 15)
    assert run_stages(build_estimator("vcpo"), batch).learning_rate_scale == pytest.approx(16**-0.5)
    assert run_stages(build_estimator("vcpo", {"lr_rule": "linear"}), batch).learning_rate_scale == pytest.approx(1 / 16)
    assert run_stages(build_estimator("vcpo", {"lr_rule": "off"}), batch).learning_rate_scale == 1.0


@examples(60)
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=8), st.floats(0.1, 1.0))
def test_the_rate_equals_the_textbook_sample_size(logs, base_ess):
    outcome = run_stages(build_estimator("vcpo", {"base_ess": base_ess}), make(logs))
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    share = math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights) / len(weights)
    assert outcome.learning_rate_scale == pytest.approx(math.sqrt(min(1.0, share / base_ess)), rel=1e-9)
    assert outcome.metrics["ess_fraction"] == pytest.approx(share, rel=1e-9)
    assert outcome.metrics["learning_rate_scale"] == pytest.approx(math.sqrt(min(1.0, share / base_ess)), rel=1e-9)


def test_very_small_ratios_keep_their_sample_size():
    logs = [-400.0, -401.0, -400.5, -402.0]
    shifted = [log + 400 for log in logs]
    scales = [run_stages(build_estimator("vcpo"), make(values)).learning_rate_scale for values in (logs, shifted)]
    assert scales[0] == pytest.approx(scales[1], rel=1e-9)
    assert scales[0] > 0.6


def test_truncated_sample_size_ignores_what_exceeds_c():
    outcome = run_stages(build_estimator("vcpo", {"ess_weights": "truncated"}), make([5.0, 9.0, 700.0]))
    assert outcome.learning_rate_scale == pytest.approx(1.0)


def test_the_baseline_is_the_mean_reward_when_all_weights_are_equal():
    outcome = run_stages(build_estimator("vcpo"), make([0.5] * 4, [1.0, 0.0, 0.0, 1.0]))
    torch.testing.assert_close(outcome.advantages_PG, torch.tensor([[0.5, -0.5, -0.5, 0.5]], dtype=torch.float64))


@examples(40)
@given(st.lists(st.floats(-4, 4), min_size=3, max_size=6), st.floats(-1.0, 2.0))
def test_no_other_baseline_has_a_smaller_weighted_square(logs, other):
    rewards = [float(index % 2) for index in range(len(logs))]
    batch = make(logs, rewards)
    advantages = run_stages(build_estimator("vcpo"), batch).advantages_PG[0].tolist()
    baseline = rewards[0] - advantages[0]
    weights = [math.exp(2 * log) for log in logs]

    def loss(b):
        return math.fsum(weight * (reward - b) ** 2 for weight, reward in zip(weights, rewards, strict=True))

    assert loss(baseline) <= loss(other) * (1 + 1e-9) + 1e-12
