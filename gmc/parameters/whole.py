"""Every process holds all parameters: one process, or several that each keep a copy and sum their gradients."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from gmc.estimators.gradient import Gradient
from gmc.models import LanguageModel
from gmc.parameters.base import Outputs, Parameters, RowsOf, all_finite
from gmc.ranks import ALONE, Ranks


class Whole(Parameters):
    """All parameters of `model` in this process. ranks: those that hold the same and each differentiate their own groups."""

    def __init__(self, model: LanguageModel, ranks: Ranks = ALONE) -> None:
        super().__init__(model, ranks, {name: each for name, each in model.network.named_parameters() if each.requires_grad})

    def versions(self) -> tuple[int, ...]:
        return tuple(parameter._version for parameter in self.model.network.parameters())

    def run(self, body: Callable[[], Outputs]) -> Outputs:
        return body()

    def gradient(self) -> Gradient:
        gradients = [parameter.grad for parameter in self.own.values() if parameter.grad is not None]
        self.ranks.add(gradients)
        return Gradient(gradients)

    def clip(self, longest: float) -> Tensor:
        norm: Tensor = torch.nn.utils.clip_grad_norm_(self.tensors, longest)
        return norm

    def share(self, sizes: Sequence[int]) -> list[int]:
        return self.ranks.share(sizes)

    def squared_gradient(self, body: Callable[[], Outputs]) -> Tensor:
        with torch.enable_grad():
            gradients = torch.autograd.grad(body()[0].sum(), self.tensors, allow_unused=True)
        return torch.stack([gradient.double().square().sum() for gradient in gradients if gradient is not None]).sum()

    def finite(self, tensors: Sequence[Tensor]) -> bool:
        return all_finite(tensors)

    def agree(self) -> bool:
        total = float(sum(tensor.detach().sum(dtype=torch.float64) for tensor in self.own.values()))
        return len(set(self.ranks.collect(total))) == 1

    def whole(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def shape(self, name: str) -> torch.Size:
        return self.own[name].shape

    def part(self, name: str, whole: Tensor) -> Tensor:
        return whole

    def read(self, folder: Path, rows_of: RowsOf) -> dict[str, Tensor]:
        from gmc.parameters.saved import read_parts  # imports much of torch.distributed, and few runs need it

        return read_parts(folder, lambda key, shape, dtype: torch.empty(shape, dtype=dtype))

    def close(self) -> None:
        pass

    def full(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.model.weights().items()
