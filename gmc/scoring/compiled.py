"""A network's feed-forward blocks and norms through torch.compile, while scoring is active."""

import contextlib
import os
import shutil
from collections.abc import Iterator

import torch
from torch import nn

from gmc.errors import UsageError

COMPILED_SUFFIXES = ("MLP", "RMSNorm", "LayerNorm")
"""Class names of modules without control flow, where most time outside matrix products goes. Attention is our own."""


class CompiledModules:
    """Compiles on first use, for any number of tokens; outside `active` the network is as it was.

    Raises `UsageError` for a network without such modules, and for a CPU without a C++ compiler.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
            raise UsageError("train.compile: torch.compile needs a C++ compiler (g++ or clang++) on a CPU; install one")
        modules = [module for module in network.modules() if type(module).__name__.endswith(COMPILED_SUFFIXES)]
        if not modules:
            raise UsageError(f"{type(network).__name__} has no modules that could be compiled; set train.compile = false")
        self._forwards = [(module, torch.compile(module.forward, dynamic=True)) for module in modules]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Within the context the modules run compiled."""
        for module, forward in self._forwards:
            module.forward = forward
        try:
            yield
        finally:
            for module, _ in self._forwards:
                del module.forward


def running(compiled: CompiledModules | None) -> contextlib.AbstractContextManager[None]:
    """`compiled.active()`, or nothing for None."""
    return contextlib.nullcontext() if compiled is None else compiled.active()
