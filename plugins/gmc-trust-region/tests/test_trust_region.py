"""m2po, m2po-official, bapo, dppo-tv and dppo-kl against literal float64 references."""

import math
import statistics

import pytest
import torch
from gmc_trust_region.bapo import BAPO
from gmc_trust_region.dppo_kl import DPPOKL
from gmc_trust_region.dppo_tv import DPPOTV
from gmc_trust_region.m2po import M2PO
from gmc_trust_region.m2po_official import M2POOfficial
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gmc.testing import check_estimator, make_batch, random_batch, run_stages

pytestmark = pytest.mark.unit


def build(rule, **chosen):
    return rule(rule.Settings(**chosen))


def tokens(batch):
    """(row, t, advantage, log π, log μ) of every response token."""
    for row in range(batch.logp_BT.shape[0]):
        rewards = batch.rewards_PG[row // batch.group_size].tolist()
        spread = statistics.stdev(rewards)
        advantage = (rewards[row % batch.group_size] - statistics.fmean(rewards)) / (spread + 1e-6) if spread else 0.0
        for t in range(int(batch.mask_BT[row].sum())):
            yield row, t, advantage, float(batch.logp_BT.detach()[row, t]), float(batch.behavior_logp_BT[row, t])


def gradient_of(batch, weight):
    gradient = torch.zeros(batch.logp_BT.shape, dtype=torch.float64)
    for row, t, advantage, now, behavior in tokens(batch):
        gradient[row, t] = weight(row, t, advantage, now, behavior) * advantage
    return gradient


def is_candidate(advantage, log_ratio):
    return (advantage > 0 and log_ratio > 0) or (advantage < 0 and log_ratio < 0)


def plain(log_ratio):
    return math.exp(log_ratio) if abs(log_ratio) <= 20 else 0.0


def m2po_dropped(batch, tau, mean_over="candidates"):
    """Remove the largest candidate one at a time until the mean of the others is within tau."""
    always = []
    if mean_over == "tokens":
        always = [(now - mu) ** 2 for _, _, a, now, mu in tokens(batch) if not is_candidate(a, now - mu)]
    left = [(now - behavior, row, t) for row, t, a, now, behavior in tokens(batch) if is_candidate(a, now - behavior)]
    dropped = set()
    while left and math.fsum([*always, *(log**2 for log, _, _ in left)]) / (len(always) + len(left)) > tau:
        worst = max(left, key=lambda one: one[0] ** 2)
        left.remove(worst)
        dropped.add(worst[1:])
    return dropped


@pytest.mark.parametrize("mean_over", ["candidates", "tokens"])
@pytest.mark.parametrize("spread", [0.1, 0.2, 0.4, 2.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_m2po_equals_the_reference(spread, seed, mean_over):
    batch = random_batch(seed=seed, group_size=6, spread=spread)
    dropped = m2po_dropped(batch, 0.04, mean_over)
    outcome = run_stages(build(M2PO, mean_over=mean_over), batch)
    expected = gradient_of(batch, lambda row, t, a, now, mu: 0.0 if (row, t) in dropped else plain(now - mu))
    torch.testing.assert_close(outcome.gradient_BT, expected, rtol=1e-9, atol=1e-12)
    assert outcome.metrics["dropped_share"] == pytest.approx(len(dropped) / int(batch.mask_BT.sum()))


def official_threshold(values, tau):
    """Walk up the sorted squares; stop before the first at which the capped sum reaches the budget."""
    ordered = sorted(values)
    if not ordered or math.fsum(ordered) / len(ordered) <= tau:
        return math.inf
    previous = 0.0
    for value in ordered:
        if math.fsum(min(other, value) for other in ordered) >= tau * len(ordered):
            return previous
        previous = value
    raise AssertionError("the budget is never reached although the mean exceeds it")


@pytest.mark.parametrize("spread", [0.1, 0.4, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_m2po_official_equals_the_reference(spread, seed):
    batch = random_batch(seed=seed, group_size=6, spread=spread)
    squares = [(now - mu) ** 2 for _, _, a, now, mu in tokens(batch) if is_candidate(a, now - mu)]
    q = official_threshold(squares, 0.04)

    def weight(row, t, a, now, mu):
        return 0.0 if is_candidate(a, now - mu) and (now - mu) ** 2 > q else math.exp(now - mu)

    outcome = run_stages(build(M2POOfficial), batch)
    torch.testing.assert_close(outcome.gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [M2PO, M2POOfficial])
def test_without_candidates_everything_is_kept(rule):
    logs = torch.tensor([[-3.0], [3.0]], dtype=torch.float64)
    outcome = run_stages(build(rule), make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64)))
    assert (outcome.gradient_BT != 0).all()


def test_when_the_smallest_candidate_exceeds_the_budget_all_candidates_go():
    logs = torch.tensor([[2.0, 3.0, -1.0], [-2.0, -4.0, 1.0]], dtype=torch.float64)
    for rule in (M2PO, M2POOfficial):
        gradient = run_stages(build(rule), make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64))).gradient_BT
        assert ((gradient != 0) == torch.tensor([[False, False, True], [False, False, True]])).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.001, 2.0), min_size=1, max_size=12, unique=True), st.floats(0.01, 1.0))
def test_m2po_keeps_a_mean_within_tau_and_no_smaller_mask_would(logs, tau):
    values = torch.tensor([logs, [0.0] * len(logs)], dtype=torch.float64)
    batch = make_batch(values, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    kept = run_stages(build(M2PO, tau=tau), batch).gradient_BT[0] != 0
    squares = [log**2 for log in logs]
    inside = [square for square, keep in zip(squares, kept.tolist(), strict=True) if keep]
    outside = sorted(square for square, keep in zip(squares, kept.tolist(), strict=True) if not keep)
    assert not inside or math.fsum(inside) / len(inside) <= tau * (1 + 1e-9)
    if outside:
        assert (math.fsum(inside) + outside[0]) / (len(inside) + 1) > tau * (1 - 1e-9)
        assert not inside or max(inside) < outside[0]


def bapo_bounds(batch, target=1.0, low=0.6, low_max=0.8, high=1.2, high_max=2.0, step=0.05):
    def ratio_of_sums():
        gain = loss = 0.0
        for _, _, a, now, mu in tokens(batch):
            r = math.exp(max(-20.0, min(20.0, now - mu)))
            gain += max(min(r, high) * a, 0.0)
            loss += max(-max(r, low) * a, 0.0)
        return gain / (loss + 1e-8)

    while low < low_max and ratio_of_sums() < target:
        low = min(low + step, low_max)
    while high < high_max and ratio_of_sums() < target:
        high = min(high + step, high_max)
    return low, high


@pytest.mark.parametrize("spread", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_bapo_equals_the_reference(spread, seed):
    batch = random_batch(seed=seed, group_size=6, spread=spread)
    low, high = bapo_bounds(batch)

    def weight(row, t, a, now, mu):
        r = plain(now - mu)
        clipped = (a > 0 and r > high) or (a < 0 and (r < low or r > 3.0))
        return 0.0 if clipped else r

    outcome = run_stages(build(BAPO), batch)
    assert outcome.metrics == pytest.approx({"clip_low": low, "clip_high": high})
    torch.testing.assert_close(outcome.gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.floats(0.1, 5.0), st.floats(0.0, 3.0))
def test_bapos_bounds_stay_between_start_and_maximum(seed, target, spread):
    metrics = run_stages(build(BAPO, target=target), random_batch(seed=seed, spread=spread)).metrics
    assert 0.6 <= metrics["clip_low"] <= 0.8
    assert 1.2 <= metrics["clip_high"] <= 2.0


def test_raising_bapos_lower_bound_never_brings_the_target_nearer():
    """Why the first search runs to its end once entered: it can only lower P/N."""
    metrics = run_stages(build(BAPO, target=1.05), random_batch(seed=3, spread=1.0)).metrics
    assert metrics["clip_low"] in (0.6, 0.8)


@pytest.mark.parametrize("spread", [0.3, 3.0, 100.0])
def test_dppo_tv_equals_the_reference(spread):
    batch = random_batch(seed=2, group_size=6, spread=spread)

    def weight(row, t, a, now, mu):
        moved = math.exp(now) - math.exp(mu)
        kept = moved <= 0.2 if a > 0 else moved >= -0.2
        return min(math.exp(min(now - mu, 10.0)), 20.0) if kept else 0.0

    torch.testing.assert_close(run_stages(build(DPPOTV), batch).gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spread", [0.3, 3.0, 100.0])
def test_dppo_kl_equals_the_reference(spread):
    batch = random_batch(seed=2, group_size=6, spread=spread)

    def weight(row, t, a, now, mu):
        p, q = math.exp(mu), math.exp(now)
        divergence = p * (mu - now) + (1 - p) * math.log((1 - p) / (1 - q))
        moved_back = now <= mu if a > 0 else now >= mu
        return min(math.exp(min(now - mu, 10.0)), 20.0) if moved_back or divergence <= 0.2 else 0.0

    torch.testing.assert_close(run_stages(build(DPPOKL), batch).gradient_BT, gradient_of(batch, weight), rtol=1e-9, atol=1e-12)


def test_dppo_bounds_likely_tokens_and_lets_rare_ones_move():
    """A rare token may triple; a likely one may not rise by 0.3, though its ratio changes less."""
    from dataclasses import replace

    from gmc.estimators.batch import Need

    batch = make_batch(torch.zeros(2, 2, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    behavior = torch.tensor([[0.01, 0.6], [0.5, 0.5]], dtype=torch.float64).log()
    current = torch.tensor([[0.03, 0.9], [0.5, 0.5]], dtype=torch.float64).log().requires_grad_()
    batch = replace(batch, logp_BT=current, brought={**batch.brought, Need.BEHAVIOR_LOGP: behavior})
    gradient = run_stages(build(DPPOTV), batch).gradient_BT
    assert gradient[0, 0] > 0
    assert gradient[0, 1] == 0


def test_tokens_that_never_go_can_use_up_m2pos_budget_or_leave_room():
    """With tau = 1: over candidates 1.2² must go; over all tokens a still one leaves room for it, a far one for nothing."""
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    for others, kept in ((0.0, True), (1.5, False)):
        logs = torch.tensor([[1.2, -others], [others, 0.0]], dtype=torch.float64)
        for mean_over, expected in (("candidates", False), ("tokens", kept)):
            gradient = run_stages(build(M2PO, tau=1.0, mean_over=mean_over), make_batch(logs, rewards)).gradient_BT
            assert bool(gradient[0, 0] != 0) == expected


def test_of_several_cuts_within_tau_the_one_that_drops_least_is_taken():
    logs = torch.tensor([[0.5, 0.1, -0.22], [0.0, 0.0, 0.0]], dtype=torch.float64)
    batch = make_batch(logs, torch.tensor([[1.0, 0.0]], dtype=torch.float64), lengths_B=[3, 0])
    gradient = run_stages(build(M2PO, mean_over="tokens"), batch).gradient_BT
    assert (gradient[0] != 0).tolist() == [False, True, True]


@pytest.mark.parametrize("rule", [M2PO, M2POOfficial, BAPO, DPPOTV, DPPOKL])
def test_the_contract(rule):
    check_estimator(rule)


def test_the_contract_of_m2po_over_all_tokens():
    check_estimator(M2PO, {"mean_over": "tokens"})


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        (M2PO, {"tau": 0}),
        (M2PO, {"mean_over": "responses"}),
        (M2POOfficial, {"tau": -1}),
        (BAPO, {"c_low": 0.9}),
        (BAPO, {"c_high": 0.9}),
        (BAPO, {"dual_clip": 1}),
        (DPPOTV, {"cap": 0.9}),
        (DPPOKL, {"delta": 0}),
    ],
)
def test_bad_settings_are_refused(rule, chosen):
    with pytest.raises(ValidationError):
        build(rule, **chosen)
