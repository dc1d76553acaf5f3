"""Errors that a person can act on: one line that names the file, row or setting, and the cure.

The command line prints the line without a traceback and exits with the class's `exit_code`.
"""

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path

_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, all that end a line among them, and those that reorder text."""


def one_line(message: str) -> str:
    r"""A message as it may be shown, whatever came into it from strangers' files: one line that steers no terminal.

    >>> print(one_line("run 'x\n\x1b[2J'"))
    run 'x\n\x1b[2J'
    """
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), message)


class GmcError(Exception):
    """A run or check failed for a reason the user can cure. Exit code 1. Its text is always one line."""

    exit_code = 1

    def __str__(self) -> str:
        return one_line(super().__str__())


class UsageError(GmcError, ValueError):
    """The request itself is wrong: an unknown name, a bad setting, a path with nothing there, and the like. Exit code 2."""

    exit_code = 2


class DataError(GmcError, ValueError):
    """A file is foreign, truncated or holds an illegal value, or one that belongs to a run is missing. Exit code 1."""


_KINDS = {
    **{"integer": "give a whole number", "number": "give a number", "boolean": "give true or false", "string": "give text"},
    **dict.fromkeys(("dictionary", "object", "dictionary or instance"), "give a table"),
    **dict.fromkeys(("list", "array", "tuple"), "give a list"),
}
_KIND = re.compile(rf"[Ii]nput should be (?:a valid|an) ({'|'.join(sorted(_KINDS, key=len, reverse=True))})\b(, [^(]*[^( ])?")
_LIMIT = re.compile(r"[Ii]nput should be (greater than or equal to|less than or equal to|greater than|less than) (\S+)")
_LIMITS = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
    "less than": "less than",
}


def plain_words(message: str) -> str:
    """What a library says of a value of the wrong kind or size, as a person would.

    >>> plain_words("Input should be a valid integer, unable to parse string as an integer"), plain_words("too small")
    ('give a whole number', 'too small')
    """
    kind = _KIND.sub(lambda found: _KINDS[found[1]], message)
    return _LIMIT.sub(lambda found: f"give {_LIMITS[found[1]]} {found[2]}", kind)


def unreadable(error: Exception) -> str:
    """What keeps a reader of JSON or TOML from a file, in words of the file: where it breaks, and not how Python puts it."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg[0].lower()}{error.msg[1:]}"
    if isinstance(error, UnicodeError):
        return "not UTF-8 text"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, OSError):
        return error.strerror or "it cannot be opened"
    return "a number of too many digits" if "int_max_str_digits" in str(error) else str(error)


def no_file(path: Path) -> str:
    """Why a path is no file that can be read: nothing is there, or something that a reader might wait for without end.

    >>> no_file(Path("/nowhere/x")), no_file(Path("/dev/null")), no_file(Path("/"))
    ('no such file', 'a device or a pipe, and a plain file is needed', 'a folder, and a file is needed')
    """
    if path.is_dir():
        return "a folder, and a file is needed"
    return "a device or a pipe, and a plain file is needed" if path.exists() else "no such file"


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
