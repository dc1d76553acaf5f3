"""Finding environments by name among the installed distributions; see `gmc.registry`."""

from gmc.environments.base import Environment
from gmc.registry import Plugin, Registry

GROUP = "gmc.environments"

_REGISTRY = Registry(GROUP, Environment, "environment")  # type: ignore[type-abstract]


def list_environments() -> list[Plugin[Environment]]:
    """Every registered environment by name, each imported on its own. A broken one is listed with its cause."""
    return _REGISTRY.plugins()


def load_environment(name: str) -> type[Environment]:
    """The class registered as `name`. Raises `UsageError` for a name that is unknown, registered twice or broken."""
    return _REGISTRY.load(name)


def origin(environment: type[Environment]) -> str:
    """Where an environment comes from: its package and version, or its module when none registers it."""
    return _REGISTRY.origin(environment)
