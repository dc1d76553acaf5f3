"""The version of what gmc writes beside shards, which have their own: one number, in every file that another gmc may read.

Files of gmc 0.1 carry none and count as format 1. docs/compatibility.md says what is promised.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gmc import __version__
from gmc.errors import DataError

FORMAT = 2
CURE = "restore it from a copy"


class NewerFormatError(DataError):
    """A file was written by a gmc whose format this one does not know."""


def stamp() -> dict[str, Any]:
    """What a record says of its origin: the format and the version of gmc that writes it."""
    return {"format": FORMAT, "gmc_version": __version__}


def read_format(path: Path, record: Mapping[str, Any]) -> int:
    """The format of a record read from `path`, 1 where it has none.

    Raises `NewerFormatError` naming both versions for a format above `FORMAT`, `DataError` for what is no format.
    """
    if not isinstance(record, Mapping):
        raise DataError(f"{path}: damaged (it holds no table of names and values); {CURE}")
    found = record.get("format", 1)
    if type(found) is not int or found < 1:
        raise DataError(f"{path}: damaged (its format is {found!r}, not a whole number of at least 1); {CURE}")
    if found > FORMAT:
        raise NewerFormatError(
            f"{path}: written by gmc {record.get('gmc_version', 'of an unknown version')} (format {found}), this is gmc "
            f"{__version__} (format {FORMAT}); use a gmc as new as the one that wrote it"
        )
    return found
