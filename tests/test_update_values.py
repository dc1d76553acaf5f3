"""One update and several, on two parameters, against AdamW written out in plain Python floats."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from training_runs import small_settings
from two_parameters import LENGTHS, REWARDS, SHIFT, START, TwoParameterModel, TwoParameterScorer, X, Y, groups, logp

from gmc.estimators.base import Estimator
from gmc.estimators.batch import Need
from gmc.estimators.gradient import SKIP, Gradient
from gmc.parameters.whole import Whole
from gmc.training.anchors import Anchors
from gmc.training.optimizer import make_optimizer
from gmc.training.update import NonFiniteError, Updater

pytestmark = pytest.mark.unit

MAX_TOKENS = 10
UPDATE = 6


class Plain(Estimator):
    """ρ · A by token, with stages that a test can set."""

    name, summary, formula, reference = "plain", "token ratio times advantage", "r A", "here"
    scope = "token"
    scale = 1.0
    skips = False
    needs = frozenset({Need.BEHAVIOR_LOGP})

    def objective(self, batch):
        return torch.exp(batch.log_ratio_BT.detach()) * batch.advantages_B1 * batch.logp_BT

    def gradient(self, gradient):
        return SKIP if self.skips else gradient

    def learning_rate_scale(self, batch):
        return self.scale


@dataclass
class ByHand:
    """Two parameters under AdamW, one float at a time."""

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    normalizer: str = "seq-mean-token-sum-norm"

    def __post_init__(self) -> None:
        self.values, self.first, self.second, self.steps = list(START), [0.0, 0.0], [0.0, 0.0], 0

    def gradient(self) -> list[float]:
        """Of the loss, before clipping."""
        total, b = [0.0, 0.0], 0
        tokens = sum(length for lengths in LENGTHS for length in lengths)
        for lengths, rewards in zip(LENGTHS, REWARDS, strict=True):
            for sample, length in enumerate(lengths):
                advantage = rewards[sample] - rewards[1 - sample]
                factor = {
                    "token-mean": 1 / tokens,
                    "seq-mean-token-mean": 1 / length / 4,
                    "seq-mean-token-sum": 1 / 4,
                    "seq-mean-token-sum-norm": 1 / 4 / MAX_TOKENS,
                }[self.normalizer]
                for t in range(length):
                    behavior = logp(START, b, t) - SHIFT[b][t]
                    ratio = math.exp(logp((self.values[0], self.values[1]), b, t) - behavior)
                    total[0] -= factor * ratio * advantage * X[b][t]
                    total[1] -= factor * ratio * advantage * Y[b][t]
                b += 1
        return total

    def step(self, scale: float = 1.0, rate: float | None = None) -> float:
        gradient = self.gradient()
        norm = math.sqrt(gradient[0] ** 2 + gradient[1] ** 2)
        share = min(1.0, self.clip_norm / (norm + 1e-6))
        rate = (self.rate if rate is None else rate) * scale
        self.steps += 1
        for i in (0, 1):
            g = gradient[i] * share
            self.values[i] -= rate * self.weight_decay * self.values[i]
            self.first[i] = self.beta1 * self.first[i] + (1 - self.beta1) * g
            self.second[i] = self.beta2 * self.second[i] + (1 - self.beta2) * g * g
            corrected = self.first[i] / (1 - self.beta1**self.steps)
            root = math.sqrt(self.second[i] / (1 - self.beta2**self.steps))
            self.values[i] -= rate * corrected / (root + self.epsilon)
        return norm


def make_updater(rule: Estimator, *assignments: str, planned: int = 10) -> Updater:
    base = ["optimizer.learning_rate=0.05", "optimizer.schedule=constant", f"rollout.max_tokens={MAX_TOKENS}"]
    settings = small_settings(*base, *assignments)
    model: Any = TwoParameterModel()
    parameters = Whole(model)
    optimizer = make_optimizer(parameters.tensors, settings.optimizer)
    return Updater(parameters, TwoParameterScorer(model), rule, optimizer, Anchors(parameters, 0), settings, planned)


def close(updater: Updater, hand: ByHand) -> None:
    assert updater.model.values == pytest.approx(tuple(hand.values), rel=1e-5, abs=1e-8)


CASES = [
    ([], {}),
    (["optimizer.beta1=0.3"], {"beta1": 0.3}),
    (["optimizer.beta2=0.5"], {"beta2": 0.5}),
    (["optimizer.epsilon=0.02"], {"epsilon": 0.02}),
    (["optimizer.weight_decay=0.3"], {"weight_decay": 0.3}),
    (["optimizer.clip_norm=0.01", "optimizer.epsilon=0.02"], {"clip_norm": 0.01, "epsilon": 0.02}),
    (["optimizer.clip_norm=100.0"], {"clip_norm": 100.0}),
    *[
        ([f"train.normalizer={name}", "optimizer.epsilon=0.05"], {"normalizer": name, "epsilon": 0.05})
        for name in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
    ],
]


@pytest.mark.parametrize(("assignments", "values"), CASES, ids=[" ".join(case[0]) or "defaults" for case in CASES])
def test_five_updates_follow_adamw_by_hand(assignments, values):
    updater, hand = make_updater(Plain(), *assignments), ByHand(0.05, **values)
    for update in range(UPDATE, UPDATE + 5):
        metrics = updater.run(groups(), update)
        assert metrics["optimizer/gradient_norm"] == pytest.approx(hand.step(), rel=1e-5)
        assert metrics["optimizer/learning_rate"] == 0.05
        assert metrics["optimizer/learning_rate_scale"] == 1
        assert metrics["optimizer/skipped"] == 0
        close(updater, hand)


def test_the_rules_scale_is_on_the_step_of_its_update_alone():
    rule = Plain()
    updater, hand = make_updater(rule), ByHand(0.05)
    for update, scale in enumerate([1.0, 0.25, 0.0, 1.0], start=UPDATE):
        rule.scale = scale
        assert updater.run(groups(), update)["optimizer/learning_rate_scale"] == scale
        hand.step(scale)
        close(updater, hand)


def test_a_skipped_update_touches_neither_weights_nor_moments():
    rule = Plain()
    updater, hand = make_updater(rule), ByHand(0.05)
    for update, skips in enumerate([False, True, True, False], start=UPDATE):
        rule.skips = skips
        metrics = updater.run(groups(), update)
        assert metrics["optimizer/skipped"] == float(skips)
        assert metrics["optimizer/gradient_norm"] == 0 if skips else metrics["optimizer/gradient_norm"] > 0
        if not skips:
            hand.step()
        close(updater, hand)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_the_rate_of_each_update_is_the_schedules(schedule):
    warmup, final, planned, peak = 2, 0.2, 8, 0.05
    settings = [f"optimizer.schedule={schedule}", f"optimizer.warmup_updates={warmup}", f"optimizer.final_fraction={final}"]
    updater, hand = make_updater(Plain(), *settings, planned=planned), ByHand(peak)
    for update in range(3, planned):
        share = (update - warmup) / (planned - warmup)
        shape = {"constant": 1.0, "cosine": (1 + math.cos(math.pi * share)) / 2, "linear": 1 - share}[schedule]
        rate = peak if schedule == "constant" else peak * (final + (1 - final) * shape)
        assert updater.run(groups(), update)["optimizer/learning_rate"] == pytest.approx(rate, rel=1e-12)
        hand.step(rate=rate)
        close(updater, hand)


@pytest.mark.parametrize(("update", "wanted"), [(0, 0.05 / 4), (1, 0.05 / 2), (2, 0.05 * 3 / 4), (3, 0.05)])
def test_the_warm_up_is_linear_and_ends_at_the_peak(update, wanted):
    from gmc.training.optimizer import learning_rate

    updater = make_updater(Plain(), "optimizer.warmup_updates=3")
    assert learning_rate(update, 10, updater.settings.optimizer) == pytest.approx(wanted)


@pytest.mark.parametrize("where", ["objective", "gradient"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_leaves_weights_and_moments_alone(where, value):
    class Broken(Plain):
        def objective(self, batch):
            return super().objective(batch) * (value if where == "objective" else 1.0)

        def gradient(self, gradient):
            return type(gradient)([tensor * value for tensor in gradient.tensors]) if where == "gradient" else gradient

    updater = make_updater(Broken())
    with pytest.raises(NonFiniteError, match=rf"update {UPDATE} \(batches \[5\]\)"):
        updater.run(groups(), UPDATE)
    assert updater.model.values == START
    assert not updater.optimizer.state


@pytest.mark.parametrize("looks", [True, False])
def test_a_models_gradient_that_is_not_finite_is_found_before_the_rule_hides_it(looks, monkeypatch):
    class Hiding(Plain):
        def gradient(self, gradient):
            return type(gradient)([torch.nan_to_num(tensor) for tensor in gradient.tensors])

    monkeypatch.setattr("gmc.training.update.model_gradient", lambda *_: Gradient([torch.tensor(math.inf)] * 2))
    updater = make_updater(Hiding() if looks else Plain())
    with pytest.raises(NonFiniteError, match="the gradient of estimator plain is not finite"):
        updater.run(groups(), UPDATE)
    assert updater.model.values == START


def test_the_time_of_an_update_is_from_its_start_to_its_end(monkeypatch):
    times = iter([100.0, 107.5])
    monkeypatch.setattr("gmc.training.update.time.perf_counter", lambda: next(times))
    assert make_updater(Plain()).run(groups(), UPDATE)["time/update_seconds"] == 7.5


def test_ratios_and_weights_in_the_metrics_are_of_this_update():
    updater = make_updater(Plain())
    metrics = updater.run(groups(), UPDATE)
    log_rho = [sum(SHIFT[b][:length]) for b, length in enumerate(n for lengths in LENGTHS for n in lengths)]
    assert metrics["ratio/log_rho_mean"] == pytest.approx(sum(log_rho) / 4, abs=1e-6)
    assert metrics["delay/mean"] == UPDATE - 3
    weights, b = [], 0
    for lengths in LENGTHS:
        for length in lengths:
            weights.append(sum(math.exp(value) for value in SHIFT[b][:length]) / length)
            b += 1
    assert metrics["weight/mean"] == pytest.approx(sum(weights) / 4, rel=1e-5)
    assert metrics["weight/max"] == pytest.approx(max(weights), rel=1e-5)
