"""Weights of the policy some updates back, for rules that compare with a recent anchor (decoupled PPO)."""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class Anchors:
    """Keeps the weights of the last `lag` policy versions. With lag 0 it keeps nothing.

    `remember` is called with the current weights at the start of every update; `weights_of(update)` gives the network the
    weights of version max(0, update − lag) and puts the current ones back.
    """

    def __init__(self, network: nn.Module, lag: int) -> None:
        self._network = network
        self._lag = lag
        self._kept: deque[dict[str, Tensor]] = deque(maxlen=lag + 1)

    def remember(self) -> None:
        """Keep a copy of the network's weights as those of the version that the coming update starts from."""
        if self._lag:
            self._kept.append({name: value.detach().clone() for name, value in self._network.named_parameters()})

    @contextlib.contextmanager
    def weights_of(self, update: int) -> Iterator[None]:
        """Within the context the network holds the weights of version max(0, update − lag)."""
        if not self._lag:
            yield
            return
        current = {name: value.detach().clone() for name, value in self._network.named_parameters()}
        self._copy_in(self._kept[0])
        try:
            yield
        finally:
            self._copy_in(current)

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

    @torch.no_grad()
    def _copy_in(self, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in self._network.named_parameters():
            parameter.copy_(weights[name])
