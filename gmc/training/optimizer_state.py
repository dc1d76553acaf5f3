"""Optimizer state as a flat dict of tensors and back: torch's AdamW and bitsandbytes' 8-bit AdamW.

Only what the optimizer remembers is kept (moments, quantization maps, step counts). Its settings come from the run's own
settings, and the learning rate is a function of the update index.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gmc.errors import DataError

SEPARATOR = "/"
# Tensors with the shape of their parameter: torch's names, then bitsandbytes' names.
MOMENTS = ("exp_avg", "exp_avg_sq", "state1", "state2")


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state by "parameter index/name", sharing storage with the optimizer, which is left untouched.

    A Python integer becomes a 0-dimensional int64 tensor. A parameter that never had a gradient has no entry.
    """
    flat: dict[str, Tensor] = {}
    for index, state in optimizer.state_dict()["state"].items():
        _flatten(str(index), state, flat)
    return flat


def _flatten(prefix: str, value: Any, flat: dict[str, Tensor]) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            _flatten(f"{prefix}{SEPARATOR}{name}", item, flat)
    elif isinstance(value, Tensor):
        flat[prefix] = value
    elif isinstance(value, int):
        flat[prefix] = torch.tensor(value, dtype=torch.int64)
    else:
        raise TypeError(f"optimizer state {prefix} is a {type(value).__name__}, which has no tensor form")


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, flat: Mapping[str, Tensor]) -> None:
    """Give an optimizer the state that `optimizer_tensors` took from one over the same parameters.

    Raises `DataError` when the state is of another kind of optimizer or of other parameters.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in flat.items():
        index, *path = key.split(SEPARATOR)
        _require_match(optimizer, parameters, int(index), path[-1], tensor)
        place = state.setdefault(int(index), {})
        for name in path[:-1]:
            place = place.setdefault(name, {})
        is_integer = tensor.dtype == torch.int64 and tensor.ndim == 0
        place[path[-1]] = int(tensor) if is_integer else tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _require_match(optimizer: torch.optim.Optimizer, parameters: list[Any], index: int, name: str, tensor: Tensor) -> None:
    if name not in MOMENTS:
        return
    expected = MOMENTS[:2] if isinstance(optimizer, torch.optim.AdamW) else MOMENTS[2:]
    if name not in expected:
        raise DataError(
            f"the checkpoint's optimizer state holds {name!r}, {type(optimizer).__name__} needs {expected[0]!r}: "
            "resume with the optimizer.name that the run was started with."
        )
    if index >= len(parameters) or tensor.shape != parameters[index].shape:
        found = tuple(parameters[index].shape) if index < len(parameters) else "absent"
        raise DataError(
            f"the checkpoint's optimizer state of parameter {index} has shape {tuple(tensor.shape)}, the model's is {found}: "
            "resume with the model that the run was started with."
        )
