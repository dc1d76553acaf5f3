"""The learning rate is a pure function of the update index and the horizon; both optimizers step."""

import math
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gmc.config.settings import OptimizerSettings
from gmc.errors import UsageError
from gmc.training.optimizer import learning_rate, make_optimizer, set_learning_rate

pytestmark = pytest.mark.unit


def settings(**values):
    return OptimizerSettings(learning_rate=1e-3, **values)


def test_cosine_with_warmup():
    chosen = settings(warmup_updates=4, schedule="cosine", final_fraction=0.1)
    rates = [learning_rate(update, 104, chosen) for update in range(105)]
    assert rates[:5] == pytest.approx([2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert rates[54] == pytest.approx(1e-3 * (0.1 + 0.9 * 0.5))
    assert rates[104] == pytest.approx(1e-4)


@given(st.integers(0, 500), st.integers(1, 500), st.sampled_from(["constant", "cosine", "linear"]), st.integers(0, 50))
def test_rate_is_positive_and_at_most_the_peak(update, planned, schedule, warmup):
    rate = learning_rate(min(update, planned - 1), planned, settings(schedule=schedule, warmup_updates=warmup))
    assert 0 < rate <= 1e-3


@pytest.mark.parametrize("name", ["adamw", "adamw8bit"])
def test_an_optimizer_lowers_a_loss(name):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(64, 128))
    optimizer = make_optimizer([weight], settings(name=name))
    before = weight.square().sum().item()
    for _ in range(20):
        weight.grad = 2 * weight.detach()
        optimizer.step()
    assert weight.square().sum().item() < before


def test_the_name_chooses_the_optimizer(monkeypatch):
    weights = [torch.nn.Parameter(torch.ones(2))]
    kinds = {name: type(make_optimizer(weights, settings(name=name))).__name__ for name in ("adamw", "adamw8bit")}
    assert kinds == {"adamw": "AdamW", "adamw8bit": "AdamW8bit"}
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(UsageError, match=r"adamw8bit: bitsandbytes cannot be imported \(.*\); use adamw"):
        make_optimizer(weights, settings(name="adamw8bit"))


@pytest.mark.parametrize("name", ["adamw", "adamw8bit"])
@pytest.mark.parametrize(
    "values",
    [{}, {"beta1": 0.3}, {"beta2": 0.5}, {"epsilon": 0.1}, {"weight_decay": 0.2}],
    ids=lambda values: " ".join(values) or "defaults",
)
def test_both_optimizers_step_by_the_settings(name, values):
    chosen = OptimizerSettings(learning_rate=0.05, name=name, **values)
    weight = torch.nn.Parameter(torch.tensor([0.75, -1.5]))
    optimizer = make_optimizer([weight], chosen)
    hand, first, second = [0.75, -1.5], [0.0, 0.0], [0.0, 0.0]
    for step, gradients in enumerate([[0.5, -1.0], [-0.25, 0.125], [0.0, 2.0], [0.3, 0.3]], start=1):
        rate = 0.05 / step
        set_learning_rate(optimizer, rate)
        weight.grad = torch.tensor(gradients)
        optimizer.step()
        for i, gradient in enumerate(gradients):
            hand[i] -= rate * chosen.weight_decay * hand[i]
            first[i] = chosen.beta1 * first[i] + (1 - chosen.beta1) * gradient
            second[i] = chosen.beta2 * second[i] + (1 - chosen.beta2) * gradient * gradient
            root = math.sqrt(second[i] / (1 - chosen.beta2**step))
            hand[i] -= rate * first[i] / (1 - chosen.beta1**step) / (root + chosen.epsilon)
    # bitsandbytes decays after the step, torch before it: they differ by rate · decay · step
    assert weight.tolist() == pytest.approx(hand, abs=1e-6 if name == "adamw" or not values.get("weight_decay") else 2e-3)
