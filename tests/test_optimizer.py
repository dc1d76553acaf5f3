"""The learning rate is a pure function of the update index and the horizon; both optimizers step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gmc.config.settings import OptimizerSettings
from gmc.training.optimizer import learning_rate, make_optimizer

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
