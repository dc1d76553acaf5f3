"""What the stages of a rule must return. Every check compares types and shapes only, so each update can afford all of them."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gmc.estimators.batch import Batch
from gmc.estimators.gradient import Gradient, Skip


class StageResultError(TypeError):
    """A stage returned something other than the contract asks for."""


def checked_advantages(value: Any, batch: Batch) -> Tensor:
    """Advantages_PG: floating-point numbers of the shape of `rewards_PG`. Raises `StageResultError`."""
    return _like(value, batch.rewards_PG, "rewards_PG")


def checked_objective(value: Any, batch: Batch) -> Tensor:
    """Objective_BT: of the shape of `logp_BT` and on a graph. Raises `StageResultError`.

    A scalar or a row would be broadcast over every token, which trains towards something else than the rule's formula.
    """
    objective_BT = _like(value, batch.logp_BT, "logp_BT")
    if not objective_BT.requires_grad:
        raise StageResultError("returned a tensor that carries no gradient to batch.logp_BT: it is detached")
    return objective_BT


def objective_gradient(objective_BT: Tensor, batch: Batch) -> Tensor:
    """∂ Σ masked objective / ∂ log π, by token. Raises `StageResultError` when the objective does not depend on `logp_BT`."""
    masked_BT = torch.where(batch.mask_BT, objective_BT, torch.zeros_like(objective_BT))
    (gradient_BT,) = torch.autograd.grad(masked_BT.sum(), batch.logp_BT, allow_unused=True)
    if gradient_BT is None:
        raise StageResultError("returned a tensor that does not depend on batch.logp_BT")
    return gradient_BT


def checked_gradient(value: Any, given: Gradient) -> Gradient | Skip:
    """A gradient with the same tensors as the one given, or SKIP. Raises `StageResultError`."""
    if isinstance(value, Skip):
        return value
    if not isinstance(value, Gradient):
        raise StageResultError(f"returned {_described(value)}, not a Gradient or SKIP")
    if not isinstance(value, type(given)):
        raise StageResultError("returned a Gradient(…) of its own, which knows one rank's part; make it with gradient.of(…)")
    if len(value.tensors) != len(given.tensors):
        raise StageResultError(f"returned {len(value.tensors)} tensors, not the {len(given.tensors)} of the gradient")
    for index, (own, tensor) in enumerate(zip(value.tensors, given.tensors, strict=True)):
        if not isinstance(own, Tensor) or (own.shape, own.dtype, own.device) != (tensor.shape, tensor.dtype, tensor.device):
            raise StageResultError(f"returned {_described(own)} as tensor {index}, not {_described(tensor)}")
    return value


def checked_scale(value: Any) -> float:
    """A finite factor of at least 0 on the learning rate. Raises `StageResultError`."""
    scale = _finite(value, "")
    if scale < 0:
        raise StageResultError(f"returned {value!r}, which is negative")
    return scale


def checked_epsilon(value: Any) -> float:
    """A finite threshold above −1, so that the cap 1 + ε is positive. Raises `StageResultError`."""
    epsilon = _finite(value, "")
    if epsilon <= -1:
        raise StageResultError(f"returned {value!r}, which is not above -1")
    return epsilon


def checked_metrics(value: Any) -> dict[str, float]:
    """Finite numbers by name. Raises `StageResultError`."""
    entries = _by_name(value)
    return {key: _finite(number, f" as metric {key!r}") for key, number in entries.items()}


def checked_state(value: Any) -> dict[str, Tensor]:
    """Tensors by name. Raises `StageResultError`."""
    entries = _by_name(value)
    for key, tensor in entries.items():
        if not isinstance(tensor, Tensor):
            raise StageResultError(f"returned {_described(tensor)} as {key!r}, not a tensor")
    return entries


def _like(value: Any, model: Tensor, name: str) -> Tensor:
    fits = isinstance(value, Tensor) and value.is_floating_point() and value.shape == model.shape
    if not fits or value.device != model.device:
        raise StageResultError(f"returned {_described(value)}, not {_described(model)}, the shape of batch.{name}")
    assert isinstance(value, Tensor)
    return value


def _finite(value: Any, what: str) -> float:
    if not isinstance(value, float | int) or not math.isfinite(value):
        given = repr(value) if isinstance(value, float | int) else _described(value)
        raise StageResultError(f"returned {given}{what}, not a finite number")
    return float(value)


def _by_name(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise StageResultError(f"returned {_described(value)}, not a dict")
    strange = [key for key in value if not isinstance(key, str)]
    if strange:
        raise StageResultError(f"returned a dict with the key {strange[0]!r}, which is not text")
    return dict(value)


def _described(value: Any) -> str:
    """Shape, type and device of a tensor; the type of anything else."""
    if not isinstance(value, Tensor):
        return "None" if value is None else f"a value of type {type(value).__name__}"
    return f"a tensor of shape {tuple(value.shape)} ({str(value.dtype).removeprefix('torch.')}, {value.device})"
