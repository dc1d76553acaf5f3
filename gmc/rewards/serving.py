"""The inside of a process that calls somebody's code for a run: `gmc.rewards.process.Worker` is the outside."""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gmc.lifeline import hold_on
from gmc.registry import words_of
from gmc.rewards.sweeping import adopt_orphans
from gmc.rewards.wire import dumps, loads


class Refusal(Exception):  # noqa: N818 (an answer and not an error of this process)
    """Why a function cannot be called, or what is wrong with what it gave, in one line."""


def load_module(place: str) -> Any:
    """The module of this name, or of this file if it ends in .py. Raises `Refusal`."""
    try:
        if not place.endswith(".py"):
            sys.path.insert(0, os.getcwd())
            return importlib.import_module(place)
        path = Path(place).resolve()
        sys.path.insert(0, str(path.parent))
        name = f"gmc_user_{path.stem}"  # a file called json.py must not take the place of the library's
        specification = importlib.util.spec_from_file_location(name, path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[name] = module
        specification.loader.exec_module(module)
        return module
    except BaseException as error:  # any import may fail in any way
        raise Refusal(f"{place} cannot be imported: {explain(error)}") from error


def explain(error: BaseException, own: Sequence[str] = ()) -> str:
    """Type and text of an error and the line of the user's code it came from, in one line. own: files that are not theirs."""
    return f"{brief(error)}{where(error, own)}"


def brief(error: BaseException) -> str:
    """Type and text of an error, in one line."""
    return f"{type(error).__name__}: {' '.join(words_of(error).split())[:300]}".rstrip(": ")


def where(error: BaseException, own: Sequence[str] = ()) -> str:
    """The line of the user's code that an error came from, in brackets; empty where none is known."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in (__file__, *own)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def serve(answer: Callable[[Any, Callable[[Any], None]], dict[str, Any]]) -> None:
    """Answer questions until standard input closes. answer: is given a question, and what takes a remark on how far it is.

    The code that is called gets an empty standard input, and what it prints goes to standard error: neither may be mixed with
    questions and answers.
    """
    hold_on()
    adopt_orphans()
    questions = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def write(record: dict[str, Any]) -> None:
        results.write(dumps(record))
        results.flush()

    own = os.getpid()
    for line in questions:
        answered = answer(loads(line), lambda at: write({"at": at}))
        if os.getpid() != own:
            os._exit(0)  # a child that the code has forked came back: one question has one answer
        write(answered)
    os._exit(0)  # threads that the code has started are not waited for
