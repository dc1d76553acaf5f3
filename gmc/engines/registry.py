"""Finding rollout engines by name among the installed distributions: the entry-point group `gmc.engines`."""

from gmc.engines.base import Engine
from gmc.errors import UsageError
from gmc.registry import Plugin, Registry

GROUP = "gmc.engines"

_REGISTRY = Registry(GROUP, Engine, "engine")  # type: ignore[type-abstract]


def list_engines() -> list[Plugin[Engine]]:
    """Every registered engine by name, each imported on its own. A broken one is listed with its cause."""
    return _REGISTRY.plugins()


def require_engine(name: str) -> None:
    """Raise `UsageError` for a name that is unknown or registered twice; imports no engine."""
    try:
        _REGISTRY.require(name)
    except UsageError as error:
        raise UsageError(f"rollout.engine = {name}: {error}") from error


def load_engine(name: str) -> type[Engine]:
    """The class registered as `name`. Raises `UsageError` for a name that is unknown, registered twice or broken."""
    try:
        return _REGISTRY.load(name)
    except UsageError as error:
        raise UsageError(f"rollout.engine = {name}: {error}") from error
