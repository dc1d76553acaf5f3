"""From what `--environment` says to an environment, with every setting filled in.

single                          a registered environment
retry(tries=3, share=0.25)      with settings
tools(functions=my_tools.py)    a file or a module needs no quotes
"""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from gmc.environments.base import Environment
from gmc.environments.limits import configuring, require_declared
from gmc.environments.registry import load_environment
from gmc.errors import UsageError
from gmc.registry import in_one_line, plain_call
from gmc.rewards.build import explain_settings, is_binary_reward

_BARE = re.compile(r"(?<==)\s*(?!True\b|False\b|None\b)([~\w./-]+\.py(?::\w+)?|[A-Za-z_][\w.]*(?::\w+)?)(?=\s*[,)])")
"""A file or a module that somebody did not quote."""
_SPEC = re.compile(r"\s*(?P<name>[^()\s]+)\s*(?P<call>\(.*\))?\s*", re.DOTALL)


def build_environment(text: str, *, seconds: float = Environment.seconds) -> Environment:
    """The environment that a spec describes. seconds: how long one call of it may take.

    Raises `UsageError` in one line for a name or a setting that is wrong.
    """
    name, given = _parsed(text)
    cls = load_environment(name)
    try:
        environment = cls(cls.Settings(**given))
    except ValidationError as error:
        raise UsageError(f"--environment {text}: {explain_settings(cls, error)}") from error
    except UsageError as error:
        raise UsageError(f"--environment {text}: {error}") from error
    except (Exception, SystemExit) as error:  # a plug-in's constructor can fail in any way; its cause is kept and named
        raise UsageError(f"--environment {text}: cannot be built: {in_one_line(error)}") from error
    environment.seconds = seconds
    return environment


def complete(text: str) -> str:
    """The spec with every setting said, as a run saves it. Raises as `build_environment`."""
    environment = build_environment(text)
    require_declared(environment)
    with configuring(environment, "completed"):
        try:
            values = environment.completed().model_dump(mode="json")
        except UsageError as error:
            raise UsageError(f"--environment {error}") from error
    given = ", ".join(f"{key}={value!r}" for key, value in values.items())
    return f"{environment.name}({given})" if given else environment.name


def code_files(text: str) -> tuple[str, ...]:
    """The files of code that the environment's settings name. Raises as `build_environment`."""
    environment = build_environment(text)
    with configuring(environment, "files"):
        files = tuple(environment.files)
    if not all(isinstance(file, str) for file in files):
        raise UsageError(
            f"--environment {environment.name}: files gave {files!r:.80}, not names of files; repair the environment"
        )
    return files


def is_binary(rewards: Sequence[str], environment: str) -> bool:
    """Whether an episode can only be worth 0 or 1, as far as that is known without importing anybody's function."""
    if not is_binary_reward(rewards):
        return False
    built = build_environment(environment)
    require_declared(built)
    return built.keeps_rewards


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    match = _SPEC.fullmatch(text)
    if match is None:
        raise UsageError(f"--environment {text}: write it as retry or retry(tries=3, share=0.25)")
    if match["call"] is None:
        return match["name"], {}
    try:
        return match["name"], _keywords(match["call"])
    except ValueError as error:
        try:
            return match["name"], _keywords(_BARE.sub(r"'\1'", match["call"]))
        except ValueError:
            raise UsageError(
                f"--environment {text}: what stands in the brackets must be settings with plain Python values, as in "
                f"(tries=3, share=0.25) or (functions='my_tools.py'); {error}"
            ) from error


def _keywords(call: str) -> dict[str, Any]:
    positional, given = plain_call(call)
    if positional:
        raise ValueError(f"{positional[0]!r} has no name")
    return given
