"""Optimizer state as a flat dict of tensors: training goes on bit-equal from what was saved."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gmc.errors import DataError
from gmc.store.checkpoints import load_newest, save_checkpoint
from gmc.training.optimizer_state import load_optimizer_tensors, optimizer_tensors

pytestmark = pytest.mark.unit

Make = Callable[[nn.Module], Optimizer]


def torch_adamw(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, fused=True)


def adamw_8bit(model: nn.Module) -> Optimizer:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    optimizer: Optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-2, weight_decay=0.1)
    return optimizer


MAKERS = [pytest.param(torch_adamw, id="adamw"), pytest.param(adamw_8bit, id="adamw8bit")]


def make_model(width: int = 80) -> nn.Module:
    """A weight above bitsandbytes' 4,096-element threshold for 8 bits, tensors below it, one that never has a gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 3))
    model.register_parameter("unused", nn.Parameter(torch.ones(4)))
    return model


def step(model: nn.Module, optimizer: Optimizer, number: int) -> None:
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad()
    model(inputs).pow(2).sum().backward()
    optimizer.step()


def state_of(optimizer: Optimizer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer).items()}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_training_goes_on_bit_equal(tmp_path: Path, make: Make, steps: int) -> None:
    model = make_model()
    optimizer = make(model)
    for number in range(steps):
        step(model, optimizer, number)
    save_checkpoint(
        tmp_path,
        steps,
        weights=model.state_dict(),
        optimizer=optimizer_tensors(optimizer),
        estimator={},
        extra={"run_id": "run"},
        keep=1,
    )

    checkpoint = load_newest(tmp_path)
    assert checkpoint is not None
    other = make_model()
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    resumed = make(other)
    other.load_state_dict(checkpoint.weights)
    load_optimizer_tensors(resumed, checkpoint.optimizer)
    for number in range(steps, steps + 6):
        step(model, optimizer, number)
        step(other, resumed, number)
    for (name, expected), found in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(found, expected), name
    expected_state, found_state = state_of(optimizer), state_of(resumed)
    assert found_state.keys() == expected_state.keys()
    assert all(torch.equal(found_state[name], tensor) for name, tensor in expected_state.items())


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("steps", [0, 2])
def test_exporting_changes_nothing(make: Make, steps: int) -> None:
    model = make_model()
    optimizer = make(model)
    plain_model = copy.deepcopy(model)
    plain = make(plain_model)
    for number in range(steps):
        step(model, optimizer, number)
        step(plain_model, plain, number)
    first, second = state_of(optimizer), state_of(optimizer)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    step(model, optimizer, steps)
    step(plain_model, plain, steps)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain_model.parameters(), strict=True))
    assert bool(first) == bool(steps)


def test_8bit_state_is_stored_as_8_bits() -> None:
    model = make_model()
    optimizer = adamw_8bit(model)
    step(model, optimizer, 0)
    kinds = {name: tensor.dtype for name, tensor in optimizer_tensors(optimizer).items() if name.endswith("state1")}
    assert torch.uint8 in kinds.values()
    assert torch.float32 in kinds.values()


@pytest.mark.parametrize("make", MAKERS)
def test_settings_stay_those_of_the_new_optimizer(make: Make) -> None:
    model = make_model()
    optimizer = make(model)
    step(model, optimizer, 0)
    other = make(model)
    for group in other.param_groups:
        group["lr"] = 0.5
    load_optimizer_tensors(other, optimizer_tensors(optimizer))
    assert [group["lr"] for group in other.param_groups] == [0.5]


def test_state_of_another_optimizer_is_refused() -> None:
    model = make_model()
    first, second = torch_adamw(model), adamw_8bit(model)
    step(model, first, 0)
    step(model, second, 0)
    with pytest.raises(DataError, match=r"holds 'exp_avg', AdamW8bit needs 'state1': resume with the optimizer\.name"):
        load_optimizer_tensors(second, optimizer_tensors(first))
    with pytest.raises(DataError, match=r"holds 'state[12]', AdamW needs 'exp_avg'"):
        load_optimizer_tensors(first, optimizer_tensors(second))


@pytest.mark.parametrize("width", [79, 81])
def test_state_of_another_model_is_refused(width: int) -> None:
    model, other = make_model(), make_model(width)
    optimizer = torch_adamw(model)
    step(model, optimizer, 0)
    with pytest.raises(DataError, match=rf"parameter 1 has shape \(80, 64\), the model's is \({width}, 64\)"):
        load_optimizer_tensors(torch_adamw(other), optimizer_tensors(optimizer))


@pytest.mark.parametrize("parameters", [1, 2])
def test_state_of_a_parameter_that_the_model_lacks_is_refused(parameters: int) -> None:
    fewer = torch.optim.AdamW([torch.ones(3, requires_grad=True) for _ in range(parameters)])
    with pytest.raises(DataError, match=r"parameter 2 has shape \(3,\), the model's is absent"):
        load_optimizer_tensors(fewer, {"2/exp_avg": torch.ones(3)})


@pytest.mark.parametrize("make", MAKERS)
def test_the_state_is_given_back_as_the_optimizer_had_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    optimizer = make(model)
    step(model, optimizer, 0)
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(optimizer, "load_state_dict", given.append)
    load_optimizer_tensors(optimizer, optimizer_tensors(optimizer))

    def shape_of(value: Any) -> Any:
        return {key: shape_of(item) for key, item in value.items()} if isinstance(value, dict) else type(value)

    assert shape_of(given[0]["state"]) == shape_of(optimizer.state_dict()["state"])
