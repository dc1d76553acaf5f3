"""Finding rewards by name among the installed distributions; see `gmc.registry`."""

from gmc.registry import Plugin, Registry
from gmc.rewards.base import Reward

GROUP = "gmc.rewards"

_REGISTRY = Registry(GROUP, Reward, "reward")  # type: ignore[type-abstract]


def list_rewards() -> list[Plugin[Reward]]:
    """Every registered reward by name, each imported on its own. A broken one is listed with its cause."""
    return _REGISTRY.plugins()


def load_reward(name: str) -> type[Reward]:
    """The class registered as `name`. Raises `UsageError` for a name that is unknown, registered twice or broken."""
    return _REGISTRY.load(name)


def origin(reward: type[Reward]) -> str:
    """Where a reward comes from: its package and version, or its module when none registers it."""
    return _REGISTRY.origin(reward)
