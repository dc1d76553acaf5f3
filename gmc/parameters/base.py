"""The one owner of what training changes. Nothing above asks whether a process holds all parameters or a part of each."""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from gmc.estimators.gradient import Gradient
from gmc.models import LanguageModel
from gmc.ranks import Ranks

Outputs = tuple[Tensor, ...]

RowsOf = Callable[[str, torch.Size], str | None]
"""Name and whole shape of a saved tensor to the parameter whose rows it has, None for one that every process holds alike."""


@torch.no_grad()
def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every value is a number: the largest magnitude of all of them, which one pass finds and one wait tells."""
    filled = [tensor for tensor in tensors if tensor.numel()]
    return not filled or bool(torch.isfinite(torch.nn.utils.get_total_norm(filled, math.inf)))


class Parameters(ABC):
    """The parameters of `model` among `ranks`.

    own: this process's part of every parameter that training changes, by name, in the network's order. Optimizer, anchors and
    swaps work on these tensors, whose `.grad` holds the same part of the gradient.
    """

    lockstep: ClassVar[bool] = False
    """Whether every rank has to make every pass, and all in the same order."""

    def __init__(self, model: LanguageModel, ranks: Ranks, own: dict[str, nn.Parameter]) -> None:
        self.model, self.ranks, self.own = model, ranks, own

    @property
    def tensors(self) -> list[nn.Parameter]:
        """The values of `own`."""
        return list(self.own.values())

    @abstractmethod
    def versions(self) -> tuple[int, ...]:
        """How often each parameter of the network has been written to in place, as autograd counts it."""

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """One step of an optimizer over `own`."""
        optimizer.step()
        # Fused optimizers write past autograd's count, by which a scorer knows what it scored with the same weights.
        torch.autograd.graph.increment_version(self.tensors)

    def clear(self) -> None:
        """Put zeros in place of the gradient, not None: with nothing to learn from, an optimizer's moments must still decay."""
        for parameter in self.own.values():
            parameter.grad = torch.zeros_like(parameter)

    @abstractmethod
    def run(self, body: Callable[[], Outputs]) -> Outputs:
        """What `body` returns, which calls the network: a pass through it, under a graph when gradients are on."""

    @abstractmethod
    def gradient(self) -> Gradient:
        """What backward passes have added since `clear`, summed over ranks; it stays in the `.grad` of `own`."""

    def put(self, gradient: Gradient) -> None:
        """Hand an optimizer over `own` this gradient."""
        for parameter, tensor in zip(self.own.values(), gradient.tensors, strict=True):
            parameter.grad = tensor

    @abstractmethod
    def clip(self, longest: float) -> Tensor:
        """Shorten the gradient in place to this norm; returns its norm before, over all parameters."""

    @abstractmethod
    def share(self, sizes: Sequence[int]) -> list[int]:
        """Which of some passes, by their cost, this rank takes part in; see `squared_gradient`."""

    @abstractmethod
    def squared_gradient(self, body: Callable[[], Outputs]) -> Tensor:
        """‖∂ Σ first output of `body` / ∂ parameters‖², float64: this rank's part, the sum over ranks that take part is whole.

        The `.grad` of the parameters is left alone.
        """

    @abstractmethod
    def finite(self, tensors: Sequence[Tensor]) -> bool:
        """Whether every value of these parts is a number, on every rank."""

    @abstractmethod
    def agree(self) -> bool:
        """Whether ranks that should hold the same numbers do."""

    @abstractmethod
    def whole(self) -> contextlib.AbstractContextManager[None]:
        """Within the context the network's own parameters are all there, for code that reads them itself."""

    @abstractmethod
    def shape(self, name: str) -> torch.Size:
        """Of a whole parameter of `own`."""

    @abstractmethod
    def part(self, name: str, whole: Tensor) -> Tensor:
        """This process's part of a tensor that is shaped like a whole parameter of `own`."""

    @abstractmethod
    def read(self, folder: Path, rows_of: RowsOf) -> dict[str, Tensor]:
        """Tensors that several processes have written together, as far as this one holds them. Errors as for `read_parts`."""

    @abstractmethod
    def close(self) -> None:
        """Give back what was taken from the processes' connections, once nothing is being written; the last call."""

    @abstractmethod
    def full(self) -> Iterator[tuple[str, Tensor]]:
        """Name and whole float32 tensor of every parameter of the network, one at a time, on every rank."""
