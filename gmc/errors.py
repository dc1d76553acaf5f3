"""Errors that a person can act on: one line that names the file, row or setting, and the cure.

The command line prints the line without a traceback and exits with the class's `exit_code`.
"""


class GmcError(Exception):
    """A run or check failed for a reason the user can cure. Exit code 1."""

    exit_code = 1


class UsageError(GmcError, ValueError):
    """The request itself is wrong: an unknown name, a bad setting, a refused combination. Exit code 2."""

    exit_code = 2


class DataError(GmcError, ValueError):
    """A file on disk is missing, foreign, truncated or holds an illegal value. Exit code 1."""
