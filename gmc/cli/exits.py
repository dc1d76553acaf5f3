"""A command that has not done its work does not end with exit code 0, whatever somebody's code in its process calls.

Rules, delays, engines, registered rewards and environments run in the process of the command. `os._exit` and the calls that put
another program in the process's place end it at once, past everything that would say so. While a command runs they are replaced
by what ends it with the command's own exit code. Code in C can still do it; docs/environments.md says so.
"""

import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from gmc.cli.output import print_error

REPLACING = ("execv", "execve")
"""All others of `os` end in one of these."""


class Exits:
    """Watches over the end of this process, and not of those that it forks. code: the command's, 1 until it is known."""

    def __init__(self) -> None:
        self.code = 1
        self._process = os.getpid()
        self._exit = os._exit

    def watch(self) -> None:
        """Take the place of what ends the process at once, until it ends."""
        setattr(os, "_exit", self._leave)  # noqa: B010 (mypy knows it as a function that never returns)
        for name in REPLACING:
            setattr(os, name, partial(self._replace, name, getattr(os, name)))

    def _leave(self, status: int) -> None:
        if status & 0xFF == 0 and self._is_early():
            self._say_and_exit(f"os._exit({status})")
        self._exit(status)

    def _replace(self, name: str, replace: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        if self._is_early():
            self._say_and_exit(f"os.{name}")
        replace(*arguments, **keywords)

    def _is_early(self) -> bool:
        return os.getpid() == self._process and self.code != 0

    def _say_and_exit(self, call: str) -> None:
        try:
            frames = traceback.extract_stack(sys._getframe(2))
            say_early(frames, call)
        finally:  # standard error may be closed
            self._exit(self.code)


def say_early(frames: traceback.StackSummary, call: str) -> None:
    """Say where somebody's code ended a command. frames: where, innermost last; those in Python's `os` are passed over."""
    frame = next(frame for frame in reversed(frames) if frame.filename != os.execvp.__code__.co_filename)
    where = f"{frame.filename}, line {frame.lineno}"
    print_error(f"{where}: {call} ended the command before it was done; repair it. A run goes on with --resume")
