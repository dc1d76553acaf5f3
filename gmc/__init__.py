"""gmc: reinforcement learning of language models on stale rollouts, and Group-Mass Capping (arXiv 2610.01896).

The library's functions are loaded when first used; see `gmc.library`.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from gmc.errors import DataError, GmcError, UsageError
    from gmc.library import Run, evaluate, export_policy, import_rollouts, read_rollouts, report, rollout, sweep, train

_LIBRARY = dict.fromkeys(
    ("Run", "evaluate", "export_policy", "import_rollouts", "read_rollouts", "report", "rollout", "sweep", "train"),
    "gmc.library",
)
_ERRORS = dict.fromkeys(("DataError", "GmcError", "UsageError"), "gmc.errors")

__all__ = [
    "DataError",
    "GmcError",
    "Run",
    "UsageError",
    "__version__",
    "evaluate",
    "export_policy",
    "import_rollouts",
    "read_rollouts",
    "report",
    "rollout",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    module = (_LIBRARY | _ERRORS).get(name)
    if module is None:
        raise AttributeError(f"module 'gmc' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
