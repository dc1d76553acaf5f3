"""Errors that a person can act on: one line that names the file, row or setting, and the cure.

The command line prints the line without a traceback and exits with the class's `exit_code`.
"""

import difflib
import re
from collections.abc import Iterable


class GmcError(Exception):
    """A run or check failed for a reason the user can cure. Exit code 1."""

    exit_code = 1


class UsageError(GmcError, ValueError):
    """The request itself is wrong: an unknown name, a bad setting, a path with nothing there, and the like. Exit code 2."""

    exit_code = 2


class DataError(GmcError, ValueError):
    """A file is foreign, truncated or holds an illegal value, or one that belongs to a run is missing. Exit code 1."""


_KINDS = {"integer": "give a whole number", "number": "give a number", "boolean": "give true or false", "string": "give text"}
_KIND = re.compile(rf"[Ii]nput should be a valid ({'|'.join(_KINDS)})(, [^(]*[^( ])?")


def plain_words(message: str) -> str:
    """What a library says of a value of the wrong kind, as a person would.

    >>> plain_words("Input should be a valid integer, unable to parse string as an integer"), plain_words("too small")
    ('give a whole number', 'too small')
    """
    return _KIND.sub(lambda found: _KINDS[found[1]], message)


def did_you_mean(said: str, known: Iterable[str]) -> str:
    """The nearest known name as the end of a line, "" where none is near. A dotted name is also known by its last part.

    >>> did_you_mean("gsm8", ["gsm8k", "math500"]), did_you_mean("updates", ["train.updates"]), did_you_mean("x", ["gmc"])
    ('; did you mean gsm8k?', '; did you mean train.updates?', '')
    >>> did_you_mean("train.seed", ["train.sharding", "seed"])
    '; did you mean seed?'
    """
    names = list(known)
    same_end = [name for name in names if name.rpartition(".")[2] == said.rpartition(".")[2]]
    near = same_end or difflib.get_close_matches(said, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
