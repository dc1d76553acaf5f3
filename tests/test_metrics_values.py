"""Every number that an update logs, against literal loops over plain Python floats."""

import math
import random

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from gmc.estimators.sample_size import ess_share
from gmc.store.shards.rollout import Rollout
from gmc.training.metrics import correlation, ratio_metrics, rollout_metrics, weight_metrics

pytestmark = pytest.mark.unit

STATUSES = ("correct", "incorrect", "unparseable", "timeout", "crash", "error")


def row(group: int, sample: int, *, length: int, version: int, reward: float, status: str, cut: bool) -> Rollout:
    return Rollout(
        run_id="r",
        problem_id=f"p{group}",
        batch=7,
        group=group,
        sample=sample,
        policy_version=version,
        prompt_token_ids=[1, 2],
        response_token_ids=list(range(length)),
        finish_reason="length" if cut else "stop",
        reward=reward,
        status=status,
        answer="1",
        prediction=None,
        prompt="",
        response="",
    )


def some_groups(seed: int, groups: int = 4, size: int = 3) -> list[list[Rollout]]:
    dice = random.Random(seed)
    made = []
    for group in range(groups):
        version = dice.randrange(9)
        equal = dice.random() < 0.3
        made.append(
            [
                row(
                    group,
                    sample,
                    length=dice.randrange(7),
                    version=version,
                    reward=1.0 if equal else float(dice.randrange(3)) / 2,
                    status=dice.choice(STATUSES),
                    cut=dice.random() < 0.4,
                )
                for sample in range(size)
            ]
        )
    return made


def average(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def pearson(xs: list[float], ys: list[float]) -> float:
    mean_x, mean_y = average(xs), average(ys)
    product = square_x = square_y = 0.0
    for x, y in zip(xs, ys, strict=True):
        product += (x - mean_x) * (y - mean_y)
        square_x += (x - mean_x) ** 2
        square_y += (y - mean_y) ** 2
    return product / math.sqrt(square_x * square_y) if square_x > 0 and square_y > 0 else 0.0


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@pytest.mark.parametrize("seed", range(8))
def test_rollout_metrics(seed):
    groups, update = some_groups(seed), 11
    rows = [one for group in groups for one in group]
    lengths = [float(len(one.response_token_ids)) for one in rows]
    delays = [float(update - one.policy_version) for one in rows]
    equal = 0
    for group in groups:
        equal += all(one.reward == group[0].reward for one in group)
    wanted = {
        "reward/mean": average([one.reward for one in rows]),
        "reward/std": average([(one.reward - average([r.reward for r in rows])) ** 2 for one in rows]) ** 0.5,
        "reward/unparseable_share": sum(one.status == "unparseable" for one in rows) / len(rows),
        "reward/timeouts": sum(one.status == "timeout" for one in rows),
        "reward/crashes": sum(one.status == "crash" for one in rows),
        "reward/errors": sum(one.status == "error" for one in rows),
        "reward/equal_groups_share": equal / len(groups),
        "delay/mean": average(delays),
        "delay/max": max(delays),
        "delay/fourth_moment": average([d * d * d * d for d in delays]),
        "delay/length_correlation": pearson(lengths, delays),
        "delay/version_0_share": sum(one.policy_version == 0 for one in rows) / len(rows),
        "response/length_mean": average(lengths),
        "response/length_max": max(lengths),
        "response/truncated_share": sum(one.finish_reason == "length" for one in rows) / len(rows),
    }
    assert rollout_metrics(groups, update) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def some_ratios(seed: int, scale: float, sequences: int = 8, tokens: int = 5) -> tuple[list[list[float]], list[int]]:
    dice = random.Random(seed)
    lengths = [dice.randrange(tokens + 1) for _ in range(sequences)]
    lengths[0] = 0
    return [[dice.gauss(0.0, scale) for _ in range(length)] for length in lengths], lengths


def padded(ragged: list[list[float]], width: int) -> torch.Tensor:
    return torch.tensor([[*values, *[0.0] * (width - len(values))] for values in ragged], dtype=torch.float64)


def mask_of(lengths: list[int], width: int) -> torch.Tensor:
    return torch.tensor([[place < length for place in range(width)] for length in lengths])


@pytest.mark.parametrize("scale", [0.0, 0.05, 0.6, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_ratio_metrics(seed, scale):
    ragged, lengths = some_ratios(seed, scale)
    size, epsilon = 4, 0.28
    log_rho = [sum(values) for values in ragged]
    rho = [math.exp(value) for value in log_rho]
    means = [average(rho[start : start + size]) for start in range(0, len(rho), size)]
    log_means = [math.log(value) for value in means]
    tokens = [value for values in ragged for value in values]
    mean_log = average(log_rho)
    squared = first = 0.0
    for value in rho:
        first += value
        squared += value * value
    wanted = {
        "ratio/log_group_mean_q05": quantile(log_means, 0.05),
        "ratio/log_group_mean_q50": quantile(log_means, 0.5),
        "ratio/log_group_mean_q95": quantile(log_means, 0.95),
        "ratio/log_rho_mean": mean_log,
        "ratio/log_rho_std": math.sqrt(average([(value - mean_log) ** 2 for value in log_rho])),
        "ratio/log_rho_max": max(log_rho),
        "ratio/log_per_token_mean": average([value / max(1, n) for value, n in zip(log_rho, lengths, strict=True)]),
        "ratio/ess_share": first * first / squared / len(rho),
        "ratio/removed_mass": average([max(0.0, value - 1 - epsilon) for value in means]),
        "ratio/groups_capped_share": average([float(value > 1 + epsilon) for value in means]),
        "ratio/kept_share": average([float(value <= 1 + epsilon) for value in rho]),
        "ratio/k3": average([math.exp(value) - 1 - value for value in tokens]),
        "ratio/tokens_above_1.2_share": average([float(math.exp(value) > 1.2) for value in tokens]),
        "ratio/tokens_below_0.8_share": average([float(math.exp(value) < 0.8) for value in tokens]),
        "ratio/length_correlation": pearson([float(n) for n in lengths], log_rho),
    }
    found = ratio_metrics(padded(ragged, 5), mask_of(lengths, 5), size, epsilon)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("epsilon", [-0.5, 0.1, 0.95, 1.2, 3.0])
def test_the_threshold_of_the_rule_is_the_one_reported(epsilon):
    ratios = torch.tensor([[math.log(1.5)], [math.log(2.5)]], dtype=torch.float64)
    found = ratio_metrics(ratios, torch.ones(2, 1, dtype=torch.bool), 2, epsilon)
    assert found["ratio/removed_mass"] == pytest.approx(max(0.0, 2.0 - 1 - epsilon))
    assert found["ratio/groups_capped_share"] == float(1 + epsilon < 2.0)
    assert found["ratio/kept_share"] == (float(1 + epsilon >= 1.5) + float(1 + epsilon >= 2.5)) / 2


def test_ratio_metrics_stay_finite_for_any_ratio_and_without_tokens():
    huge = torch.tensor([[900.0, 900.0], [-900.0, -900.0]], dtype=torch.float64)
    found = ratio_metrics(huge, torch.ones(2, 2, dtype=torch.bool), 2, 0.28)
    assert all(math.isfinite(value) for value in found.values())
    assert found["ratio/ess_share"] == pytest.approx(0.5)
    assert found["ratio/log_group_mean_q50"] == pytest.approx(1800 - math.log(2))
    empty = ratio_metrics(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool), 2, 0.28)
    assert empty["ratio/k3"] == empty["ratio/tokens_above_1.2_share"] == empty["ratio/tokens_below_0.8_share"] == 0
    assert empty["ratio/ess_share"] == 1


@pytest.mark.parametrize("seed", range(6))
def test_weight_metrics(seed):
    dice = random.Random(seed)
    lengths = [0, 3, 1, 4, 2, 4]
    advantages = [1.0, -0.5, 0.0, 2.0, -1.0, 0.25]
    weights = [[dice.choice([0.0, dice.uniform(0, 3)]) for _ in range(length)] for length in lengths]
    gradients = [[w * a for w in values] for values, a in zip(weights, advantages, strict=True)]
    counted = [i for i in range(6) if lengths[i] > 0 and advantages[i] != 0]
    by_response = [average(weights[i]) for i in counted]
    gradient_BT = padded(gradients, 4)
    gradient_BT[0] = math.nan  # padding may hold anything
    found = weight_metrics(gradient_BT, torch.tensor(advantages, dtype=torch.float64), mask_of(lengths, 4))
    wanted = {
        "weight/mean": average(by_response),
        "weight/max": max(by_response),
        "weight/zero_share": average([float(value == 0) for value in by_response]),
        "weight/length_correlation": pearson([float(lengths[i]) for i in counted], by_response),
    }
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_weight_metrics_without_any_weight_are_zero():
    found = weight_metrics(torch.ones(2, 3), torch.zeros(2), torch.ones(2, 3, dtype=torch.bool))
    assert found == {"weight/mean": 0, "weight/max": 0, "weight/zero_share": 0, "weight/length_correlation": 0}


def test_the_sample_size_of_small_weights_and_of_none():
    assert ess_share(torch.tensor([0.1, 0.3], dtype=torch.float64)) == pytest.approx(0.4**2 / (2 * (0.01 + 0.09)))
    assert ess_share(torch.zeros(3)) == 0


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=2, max_size=9))
@example([(0.0, 0.0), (1.0, 1e-158)])
def test_correlation_is_pearsons_and_within_one(pairs):
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    found = correlation(xs, ys)
    assert -1 - 1e-9 <= found <= 1 + 1e-9
    if max(xs) - min(xs) > 1e-3 and max(ys) - min(ys) > 1e-3:
        assert found == pytest.approx(pearson(xs, ys), abs=1e-6)


@pytest.mark.parametrize("log_ratio", [49.5, 50.5, 80.0, -49.5, -50.5])
def test_k3_clamps_a_log_ratio_to_50_on_either_side(log_ratio):
    found = ratio_metrics(torch.tensor([[log_ratio], [0.0]]), torch.ones(2, 1, dtype=torch.bool), 2, 0.28)["ratio/k3"]
    clamped = min(50.0, max(-50.0, log_ratio))
    assert found == pytest.approx((math.exp(clamped) - 1 - clamped) / 2, rel=1e-9)


def test_means_of_the_parts_of_a_reward_leave_out_what_does_not_apply():
    groups = some_groups(0, groups=1)
    for one, parts in zip(groups[0], ([1.0, math.nan], [0.0, 0.25], [1.0, 0.75]), strict=True):
        one.reward_parts = parts
    found = rollout_metrics(groups, 11, ["math", "short"])
    assert (found["reward/parts/math"], found["reward/parts/short"]) == (pytest.approx(2 / 3), 0.5)
    for one in groups[0]:
        one.reward_parts = [1.0, math.nan]
    assert "reward/parts/short" not in rollout_metrics(groups, 11, ["math", "short"])
    assert not [name for name in rollout_metrics(groups, 11, ["math"]) if "parts" in name]


def test_versions_inside_responses_against_plain_loops():
    rows = [row(0, sample, length=5, version=2, reward=0.0, status="correct", cut=False) for sample in range(4)]
    versions = [[2, 2, 3, 5, 5], None, [2, 2, 2, 2, 4], [2, 3, 4, 5, 6]]
    for one, own in zip(rows, versions, strict=True):
        one.token_versions = own
    found = rollout_metrics([rows], 9)
    lags = [[9 - version for version in own or [2] * 5] for own in versions]
    assert found["delay/mixed_share"] == 3 / 4
    assert found["delay/versions_mean"] == (3 + 1 + 2 + 5) / 4
    assert found["delay/token_mean"] == pytest.approx(sum(sum(own) for own in lags) / 20)
    assert found["delay/within_response_mean"] == (3 + 0 + 2 + 4) / 4
    assert found["delay/after_response_mean"] == (4 + 7 + 5 + 3) / 4
    assert found["delay/mean"] == 7.0  # of the first token
    plain = rollout_metrics([[one for one in rows if one.token_versions is None]], 9)
    assert not any(name.startswith(("delay/mixed", "delay/versions", "delay/token", "delay/within")) for name in plain)
