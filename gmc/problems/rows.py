"""One row of a problem file, and where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class JsonNumber(str):
    """A number as its file wrote it: "27.0", "1e5" and thirty digits keep their form, which no float would."""

    __slots__ = ()


@dataclass(frozen=True)
class Row:
    """A row's values by field name.

    place: what a message calls it ("line 3" of a text file, "row 3" of a table; both count from 1).
    """

    values: Mapping[str, Any]
    place: str
