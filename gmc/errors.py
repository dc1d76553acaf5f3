"""Errors that a person can act on: one line that names the file, row or setting, and the cure.

The command line prints the line without a traceback and exits with the class's `exit_code`.
"""

import difflib
from collections.abc import Iterable


class GmcError(Exception):
    """A run or check failed for a reason the user can cure. Exit code 1."""

    exit_code = 1


class UsageError(GmcError, ValueError):
    """The request itself is wrong: an unknown name, a bad setting, a path with nothing there, and the like. Exit code 2."""

    exit_code = 2


class DataError(GmcError, ValueError):
    """A file is foreign, truncated or holds an illegal value, or one that belongs to a run is missing. Exit code 1."""


def did_you_mean(said: str, known: Iterable[str]) -> str:
    """The nearest known name as the end of a line, "" where none is near. A dotted name is also known by its last part.

    >>> did_you_mean("gsm8", ["gsm8k", "math500"]), did_you_mean("updates", ["train.updates"]), did_you_mean("x", ["gmc"])
    ('; did you mean gsm8k?', '; did you mean train.updates?', '')
    """
    names = list(known)
    same_end = [name for name in names if name.rpartition(".")[2] == said]
    near = same_end or difflib.get_close_matches(said, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
