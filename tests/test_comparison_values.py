"""What `gmc estimators compare` reports of a rule, on two parameters, against plain Python floats."""

import math
from typing import Any

import pytest
import torch
from shard_samples import METADATA
from two_parameters import LENGTHS, SHIFT, START, WIDTH, TwoParameterModel, TwoParameterScorer, X, Y, groups, logp

from gmc.comparison.compare import compare_rules
from gmc.comparison.stored import StoredBatch
from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.gradient import SKIP
from gmc.estimators.normalizer import Normalizer

pytestmark = pytest.mark.unit

MAX_TOKENS, VERSION = 10, 8
FLAT = [length for lengths in LENGTHS for length in lengths]
REWARDS = {
    "all differ": [[1.0, 0.0], [0.25, 0.75]],
    "one group is equal": [[0.5, 0.5], [2.0, 0.0]],
}
WEIGHTS = {
    "some zero": [[0.5, 0.0, 1.5], [0.0, 9.0, 9.0], [1.25, 0.75, 9.0], [0.0, 2.0, 9.0]],
    "above every ratio": [[50.0] * 3] * 4,
    "none": [[0.0] * 3] * 4,
}


class Table(Estimator):
    """Weights from a table."""

    name, summary, formula, reference = "table", "given weights", "w A", "here"
    scope = "token"
    normalizer = Normalizer.SEQ_MEAN_TOKEN_SUM_NORM
    needs = frozenset({Need.BEHAVIOR_LOGP})
    broken = ""

    def __init__(self, weights: list[list[float]]) -> None:
        super().__init__()
        self.weights = weights

    def objective(self, batch: Any) -> Any:
        factor = math.nan if self.broken == "not finite" else 1.0
        return torch.tensor(self.weights) * batch.advantages_B1 * batch.logp_BT * factor

    def gradient(self, gradient: Any) -> Any:
        return SKIP if self.broken == "skips" else gradient

    def learning_rate_scale(self, batch: Any) -> float:
        return 0.375


def stored(rewards: list[list[float]]) -> StoredBatch:
    rows = groups()
    for group, values in zip(rows, rewards, strict=True):
        for row, reward in zip(group, values, strict=True):
            row.reward = reward
    sampling = {"temperature": "1.0", "max_tokens": str(MAX_TOKENS), "stop": "()"}
    metadata = type(METADATA)(**{**vars(METADATA), "sampling": sampling, "group_size": 2})
    return StoredBatch(rows, metadata, VERSION, "trainer", [])


def compare(rule: Estimator, rewards: list[list[float]], values: tuple[float, float], **options: Any) -> Any:
    model = TwoParameterModel()
    with torch.no_grad():
        model.network.a.fill_(values[0])
        model.network.b.fill_(values[1])
    scorer: Any = TwoParameterScorer(model)
    return compare_rules([rule], scorer, stored(rewards), **options)


def log_rhos(values: tuple[float, float]) -> list[float]:
    return [sum(logp(values, b, t) - logp(START, b, t) + SHIFT[b][t] for t in range(FLAT[b])) for b in range(4)]


def advantages(rewards: list[list[float]]) -> list[float]:
    return [values[i] - values[1 - i] for values in rewards for i in (0, 1)]


def quantile(values: list[float], share: float) -> float:
    ordered, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def gradient_by_hand(weights: list[list[float]], rewards: list[list[float]], factor: float) -> list[float]:
    total = [0.0, 0.0]
    for b, advantage in enumerate(advantages(rewards)):
        for t in range(FLAT[b]):
            total[0] += factor * weights[b][t] * advantage * X[b][t]
            total[1] += factor * weights[b][t] * advantage * Y[b][t]
    return total


def ess(values: list[float]) -> float:
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


@pytest.mark.parametrize("values", [START, (0.9, -0.6), (9.0, 14.0)], ids=["near", "moved", "far beyond e^20"])
@pytest.mark.parametrize("rewards", list(REWARDS.values()), ids=list(REWARDS))
@pytest.mark.parametrize("weights", list(WEIGHTS.values()), ids=list(WEIGHTS))
def test_weights_of_a_rule(weights, rewards, values):
    found = compare(Table(weights), rewards, values).rows[0].weights
    counted = [b for b, advantage in enumerate(advantages(rewards)) if advantage]
    means = [sum(weights[b][: FLAT[b]]) / FLAT[b] for b in counted]
    tokens = [weights[b][t] for b in counted for t in range(FLAT[b])]
    ratios = [math.exp(max(-20.0, min(20.0, log_rhos(values)[b]))) for b in counted]
    wanted = {
        "q05": quantile(means, 0.05),
        "q50": quantile(means, 0.5),
        "q95": quantile(means, 0.95),
        "largest": max(means),
        "kept_share": sum(weight != 0 for weight in tokens) / len(tokens),
        "removed_mass": sum(max(0.0, ratio - mean) for ratio, mean in zip(ratios, means, strict=True)) / len(means),
        "ess_share": ess(means),
    }
    assert vars(found) == pytest.approx(wanted, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("values", [START, (0.9, -0.6)])
def test_raw_ratios_and_delays(values):
    found = compare(Table(WEIGHTS["some zero"]), REWARDS["one group is equal"], values)
    logs = log_rhos(values)
    assert found.responses == 4
    assert found.ess_share == pytest.approx(ess([math.exp(value) for value in logs]), rel=1e-5)
    assert found.log_rho_quantiles == pytest.approx([quantile(logs, share) for share in (0.05, 0.5, 0.95)], rel=1e-5)
    assert found.delay_mean == VERSION - 3
    assert found.fresh_agreement is None


@pytest.mark.parametrize("rewards", list(REWARDS.values()), ids=list(REWARDS))
def test_norm_cosine_and_scale_of_a_rule(rewards):
    values, weights = (0.9, -0.6), WEIGHTS["some zero"]
    row = compare(Table(weights), rewards, values).rows[0]
    own = gradient_by_hand(weights, rewards, 1 / 4 / MAX_TOKENS)
    plain = gradient_by_hand([[math.exp(value)] * WIDTH for value in log_rhos(values)], rewards, 1 / 4 / MAX_TOKENS)
    assert row.norm == pytest.approx(math.hypot(*own), rel=1e-5)
    product = own[0] * plain[0] + own[1] * plain[1]
    assert row.cosine_is == pytest.approx(product / math.hypot(*own) / math.hypot(*plain), rel=1e-5)
    assert row.learning_rate_scale == 0.375
    assert (row.normalizer, row.cosine_on_policy) == ("seq-mean-token-sum-norm", None)


def test_a_normalizer_for_all_is_the_one_of_the_norm():
    rewards, weights = REWARDS["all differ"], WEIGHTS["some zero"]
    row = compare(Table(weights), rewards, START, normalizer=Normalizer.TOKEN_MEAN).rows[0]
    assert row.norm == pytest.approx(math.hypot(*gradient_by_hand(weights, rewards, 1 / sum(FLAT))), rel=1e-5)
    assert row.normalizer == "token-mean"


def test_a_rule_without_any_weight_has_no_direction():
    row = compare(Table(WEIGHTS["none"]), REWARDS["all differ"], START).rows[0]
    assert (row.norm, row.cosine_is) == (0, 0)


@pytest.mark.parametrize(("broken", "reason"), [("not finite", "is not finite"), ("skips", "skips this update")])
def test_a_rule_without_a_gradient_is_named_with_the_reason(broken, reason):
    rule = Table(WEIGHTS["some zero"])
    rule.broken = broken
    found = compare(rule, REWARDS["all differ"], START)
    assert found.rows == []
    assert reason in found.not_measured["table"]
