"""Finding an installed environment of verifiers, and refusing by name what gmc cannot play."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.configs.env import EnvConfig
from verifiers.v1.env import Env
from verifiers.v1.task import Task
from verifiers.v1.utils.loaders import default_harness_id, load_environment, resolve_env_config

from gmc.errors import UsageError
from gmc.registry import in_one_line
from gmc_verifiers.harness import HARNESS

CHATS = ("null", "bash")
"""Harnesses of verifiers in whose place gmc plays: both are a chat when the model is given no tools. `bash` counts only where
nobody chose it, as what verifiers takes by default."""


def load(name: str) -> Env[Any]:
    """The environment `name`, its agent played by gmc. Raises `UsageError` in one line."""
    try:
        config = resolve_env_config({"taskset": {"id": name}})
        seat = _seat(name, config)
        own = {"harness": {"id": HARNESS}, "runtime": {"type": "subprocess"}}
        env = load_environment(resolve_env_config({"taskset": {"id": name}, seat: own}))
    except UsageError:
        raise
    except Exception as error:  # somebody's package can fail in any way; its cause is kept and named
        raise UsageError(f"env={name!r} of verifiers cannot be loaded: {in_one_line(error)}") from error
    _refuse_tasks(name, env)
    return env


def _seat(name: str, config: EnvConfig) -> str:
    """The name of its only agent."""
    seats = agent_config_fields(config)
    if len(seats) != 1:
        raise UsageError(f"env={name!r} has {len(seats)} agents ({', '.join(seats)}); gmc plays environments of one")
    [(seat, agent)] = seats.items()
    harness = default_harness_id(name) if agent.harness is None else agent.harness.id
    if harness not in CHATS or (harness == "bash" and agent.harness is not None):
        raise UsageError(f"env={name!r} wants the harness {harness!r}; gmc plays 'null' and what names none")
    for what in ("client", "model", "sampling", "max_input_tokens", "max_output_tokens", "max_total_tokens"):
        if getattr(agent, what) is not None:
            raise UsageError(f"env={name!r} sets {what} of its agent, which is the run's to set")
    return seat


def _refuse_tasks(name: str, env: Env[Any]) -> None:
    config = env.taskset.config
    if config.task.judges:
        raise UsageError(f"env={name!r} has judges, which call another model; gmc plays environments that score by themselves")
    kind = type(env.taskset).task_type()
    if kind.NEEDS_CONTAINER:
        raise UsageError(f"env={name!r} needs a container for its tasks; gmc plays in its own process")
    if kind.toolsets(config.task) or env.taskset.toolsets(config):
        raise UsageError(f"env={name!r} gives the model tools (toolsets), which only harnesses with MCP have; gmc plays chats")


class Tasks:
    """The tasks of an environment by index, read as far as they were asked for."""

    def __init__(self, env: Env[Any]) -> None:
        self._rest: Iterator[Task[Any, Any, Any]] = iter(env.taskset)
        self._read: list[Task[Any, Any, Any]] = []

    def __getitem__(self, index: int) -> Task[Any, Any, Any]:
        self._read += islice(self._rest, max(0, index + 1 - len(self._read)))
        return self._read[index]
