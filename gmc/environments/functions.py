"""Anybody's Python functions as tools of the model, called in a process of their own."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gmc.errors import GmcError
from gmc.rewards.build import require_names
from gmc.rewards.function import load
from gmc.rewards.process import Worker, WorkerDiedError, WorkerTimeoutError

log = logging.getLogger(__name__)

CALLED = ({"answer"}, {"error", "function", "line"})
"""What the process may say of a call."""


class ToolError(GmcError):
    """The functions of a tool cannot be had: their file cannot be imported, or does not say what they do."""


@dataclass(frozen=True)
class Place:
    """Where functions are: FILE.py or MODULE, all that it defines or, behind a colon, some by name."""

    target: str
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Raises `ValueError` for text that is neither."""
        target, colon, names = text.strip().partition(":")
        found = tuple(name.strip() for name in names.split(",")) if colon else ()
        if not target or not all(name.isidentifier() for name in found):
            raise ValueError("write it as my_tools.py, package.module or my_tools.py:add,subtract")
        return cls(target, found)

    @property
    def is_file(self) -> bool:
        """Whether it is a file and no module."""
        return self.target.endswith(".py")

    def __str__(self) -> str:
        return f"{self.target}:{','.join(self.names)}" if self.names else self.target

    def resolved(self) -> "Place":
        """With the whole path of its file, so that a run goes on from any folder.

        Raises `UsageError` for a file, a module or a name in it that is not there, as far as that shows without running it.
        """
        require_names(f"tools(functions={str(self)!r})", self.target, self.names)
        return Place(str(Path(self.target).resolve()), self.names) if self.is_file else self


class ToolFunctions:
    """The functions of one place. They are imported when they are first asked for, and again after `close`.

    seconds: how long one call may take; characters: of a result that the model is told.
    """

    def __init__(self, place: Place, *, seconds: float, characters: int) -> None:
        self._place, self._seconds, self._characters = place, seconds, characters
        self._worker = Worker("gmc.environments.calling")
        self._described: list[str] = []
        self._told: set[tuple[str, str]] = set()

    def described(self) -> str:
        """A line a function: name, signature, docstring. Raises `ToolError` in one line."""
        if not self._described:
            self._load()
        return "\n".join(self._described)

    def call(self, text: str) -> str:
        """What the call that the model wrote gives, or "error: " and why it gives nothing, for the model to read.

        A function that raises, ends its process or takes too long is the model's business: it may have been called wrongly. The
        first of each kind is logged.
        """
        if not self._worker.running:
            self._load()
        try:
            answer: Mapping[str, Any] = self._worker.ask({"call": text, "characters": self._characters}, self._seconds, CALLED)
        except WorkerTimeoutError as error:
            answer = {"error": f"no result within {self._seconds:g} s", "function": error.last or "", "line": ""}
        except WorkerDiedError as error:
            answer = {"error": str(error), "function": error.last or "", "line": ""}
        if "answer" in answer:
            return str(answer["answer"])
        if answer["function"]:
            self._log(answer["function"], answer["error"], answer["line"])
        return f"error: {answer['error']}"

    def close(self) -> None:
        """End the process; the next call starts another."""
        self._worker.close()

    def _load(self) -> None:
        what = f"tools(functions={str(self._place)!r})"
        answer = load(self._worker, [self._place.target, list(self._place.names)], f"--environment {what}", ToolError)
        if "refused" in answer:
            self._worker.close()
            raise ToolError(f"--environment {what}: {answer['refused']}")
        self._described = answer["functions"]

    def _log(self, function: str, error: str, line: str) -> None:
        kind = error.partition(":")[0]
        if (function, kind) not in self._told:
            self._told.add((function, kind))
            log.warning(
                "tool %s of %s: %s%s; the model is told, from now on without a word here", function, self._place, error, line
            )
