"""Definition 1 of arXiv 2610.01896: which rules are in the class, and Proposition 2 about the best of them."""

import functools
import math

import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.estimators.batch import Need
from gmc.estimators.registry import build_estimator
from gmc.testing import make_batch, run_stages

pytestmark = pytest.mark.unit

EPSILON = 0.28
MEMBERS = ("gmc", "tic", "truncated", "group-truncated")
ratios = st.lists(st.floats(-6, 6), min_size=2, max_size=10)


@functools.cache
def rule(name):
    """Rules without state, built once."""
    return build_estimator(name, {"epsilon": EPSILON} if name in MEMBERS else {})


def kappa(name, logs):
    """Gradient weight over advantage of each response of one group (one token each)."""
    rewards = torch.tensor([[1.0] + [0.0] * (len(logs) - 1)], dtype=torch.float64)
    batch = make_batch(torch.tensor(logs, dtype=torch.float64)[:, None], rewards)
    outcome = run_stages(rule(name), batch)
    return (outcome.gradient_BT[:, 0] / outcome.advantages_PG[0]).tolist()


def is_member(weights, logs):
    """0 ≤ w ≤ 1 and mean w·ρ ≤ 1+ε, with w = κ/ρ."""
    shares = [weight / math.exp(log) for weight, log in zip(weights, logs, strict=True)]
    mass = math.fsum(weights) / len(weights)
    return all(-1e-12 <= share <= 1 + 1e-12 for share in shares) and mass <= (1 + EPSILON) * (1 + 1e-12)


@examples(80)
@given(ratios)
def test_gmc_tic_and_both_truncations_are_members(logs):
    for name in MEMBERS:
        assert is_member(kappa(name, logs), logs), name


@examples(60)
@given(ratios)
def test_self_normalized_weights_are_members_exactly_when_they_scale_nothing_up(logs):
    mean = math.fsum(math.exp(log) for log in logs) / len(logs)
    if abs(mean - 1) > 1e-6:
        assert is_member(kappa("snis", logs), logs) == (mean > 1)


@examples(60)
@given(ratios)
def test_group_truncation_removes_the_mass_that_gmc_removes_from_the_largest_ratios_alone(logs):
    group, gmc = kappa("group-truncated", logs), kappa("gmc", logs)
    assert math.fsum(group) == pytest.approx(math.fsum(gmc), rel=1e-9)
    level = max(group)
    for log, weight in zip(logs, group, strict=True):
        assert weight == pytest.approx(min(math.exp(log), level), rel=1e-9)


@examples(60)
@given(ratios)
def test_plain_weighting_is_a_member_exactly_when_the_mean_ratio_is_at_most_the_cap(logs):
    mean = math.fsum(math.exp(log) for log in logs) / len(logs)
    if abs(mean - (1 + EPSILON)) > 1e-6:
        assert is_member(kappa("is", logs), logs) == (mean < 1 + EPSILON)


@pytest.mark.parametrize("name", ["grpo", "a3po"])
def test_a_large_ratio_with_a_negative_advantage_is_outside(name):
    logs = [0.0, 4.0]
    weights = kappa(name, logs)
    assert weights[1] == pytest.approx(math.exp(4.0), rel=1e-9)
    assert not is_member(weights, logs)


def test_a3po_is_outside_for_a_positive_advantage_too_at_a_large_lag():
    lags = torch.full((2, 1), 128.0, dtype=torch.float64)
    logs = torch.tensor([[4.0], [0.0]], dtype=torch.float64)
    batch = make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64), brought={Need.LAGS: lags})
    outcome = run_stages(build_estimator("a3po"), batch)
    weights = (outcome.gradient_BT[:, 0] / outcome.advantages_PG[0]).tolist()
    assert not is_member(weights, [4.0, 0.0])


@examples(40)
@given(ratios, st.integers(0, 10_000))
def test_no_member_that_keeps_the_groups_direction_removes_less_mass_than_gmc(logs, seed):
    """Proposition 2. Keeping the direction for every advantage and score means one scalar for the whole group."""
    draw = torch.Generator().manual_seed(seed)
    masses = [math.exp(log) for log in logs]
    removed = math.fsum(mass - weight for mass, weight in zip(masses, kappa("gmc", logs), strict=True))
    for _ in range(20):
        scalar = float(torch.rand(1, generator=draw, dtype=torch.float64))
        weights = [scalar * mass for mass in masses]
        if is_member(weights, logs):
            assert math.fsum(mass - weight for mass, weight in zip(masses, weights, strict=True)) >= removed - 1e-9 * sum(
                masses
            )


@examples(60)
@given(ratios)
def test_gmc_keeps_the_direction_of_the_uncapped_gradient(logs):
    weights = kappa("gmc", logs)
    shares = [weight / math.exp(log) for weight, log in zip(weights, logs, strict=True)]
    assert max(shares) - min(shares) <= 1e-9 * max(shares)


def test_the_other_members_turn_a_groups_direction():
    logs = [0.0, 2.0, -1.0]
    for name in ("tic", "truncated", "group-truncated"):
        shares = [weight / math.exp(log) for weight, log in zip(kappa(name, logs), logs, strict=True)]
        assert max(shares) - min(shares) > 0.3


@examples(60)
@given(ratios)
def test_removed_mass_of_gmc_is_the_excess_of_the_mean_ratio(logs):
    masses = [math.exp(log) for log in logs]
    mean = math.fsum(masses) / len(masses)
    kept = math.fsum(kappa("gmc", logs)) / len(masses)
    assert mean - kept == pytest.approx(max(mean - (1 + EPSILON), 0.0), rel=1e-9, abs=1e-12)
