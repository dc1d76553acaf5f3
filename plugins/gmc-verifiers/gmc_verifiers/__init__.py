"""Environments written for the library `verifiers` (0.4.0), played by gmc.

`verifiers` finds a harness by importing the module that its id names and looking through `__all__`: this package is the harness
`gmc-verifiers`, imported only when it is asked for.
"""

from typing import Any

__all__ = ["ChatHarness"]


def __getattr__(name: str) -> Any:
    if name == "ChatHarness":
        from gmc_verifiers.harness import ChatHarness

        return ChatHarness
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
