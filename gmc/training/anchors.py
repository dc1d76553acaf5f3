"""Weights of other policies, lent to the network for a scoring pass: recent ones (decoupled PPO) and the initial one (KL)."""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from gmc.parameters.base import Parameters


def copied(parameters: Parameters) -> dict[str, Tensor]:
    """A copy of this process's part of every parameter that training changes, by name."""
    return {name: value.detach().clone() for name, value in parameters.own.items()}


@contextlib.contextmanager
def lent(parameters: Parameters, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Within the context the network holds these weights; afterwards its own again, bit for bit."""
    current = copied(parameters)
    _copy_in(parameters, weights)
    try:
        yield
    finally:
        _copy_in(parameters, current)


@torch.no_grad()
def _copy_in(parameters: Parameters, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in parameters.own.items():
        parameter.copy_(weights[name])


class Reference:
    """Keeps the weights of version 0, for rules that compare with the initial policy.

    Made while the network still holds them, before a checkpoint is loaded: a resumed run has the same from the same model.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters, self._weights = parameters, copied(parameters)

    @contextlib.contextmanager
    def weights(self) -> Iterator[None]:
        """Within the context the network holds the weights of version 0."""
        with lent(self._parameters, self._weights):
            yield


class Anchors:
    """Keeps the weights of the last `lag` policy versions. With lag 0 it keeps nothing.

    `remember` is called with the current weights at the start of every update; `weights_of(update)` gives the network the
    weights of version max(0, update − lag) and puts the current ones back.
    """

    def __init__(self, parameters: Parameters, lag: int) -> None:
        self._parameters = parameters
        self._lag = lag
        self._kept: deque[dict[str, Tensor]] = deque(maxlen=lag + 1)

    def remember(self) -> None:
        """Keep a copy of the network's weights as those of the version that the coming update starts from."""
        if self._lag:
            self._kept.append(copied(self._parameters))

    @contextlib.contextmanager
    def weights_of(self, update: int) -> Iterator[None]:
        """Within the context the network holds the weights of version max(0, update − lag)."""
        if not self._lag:
            yield
            return
        with lent(self._parameters, self._kept[0]):
            yield

    def state_dict(self) -> dict[str, Tensor]:
        """The kept weights as flat tensors, oldest first."""
        return {f"{index}/{name}": value for index, kept in enumerate(self._kept) for name, value in kept.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
        self._kept.clear()
        kept: dict[int, dict[str, Tensor]] = {}
        for key, value in state.items():
            index, _, name = key.partition("/")
            kept.setdefault(int(index), {})[name] = value
        self._kept.extend(kept[index] for index in sorted(kept))
