"""What small files of names and values must hold: a wrong entry is named as the file has it, with what belongs there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from gmc.errors import DataError, plain_words

T = TypeVar("T")
SHOWN = 60
"""Characters of a wrong value that a message shows."""


def checked(kind: TypeAdapter[T], content: Any, path: Path | str, cure: str) -> T:
    """The content of `path` as a record of this kind: every entry there, and none of another type. Entries of other names are
    passed over.

    Raises `DataError` in one line with the first entry that is wrong, and the cure.
    """
    if not isinstance(content, Mapping):
        raise DataError(f"{path}: damaged (it holds no table of names and values); {cure}")
    try:
        # By way of JSON, where strict means what the file says: no text for a number, but a list for a tuple.
        return kind.validate_json(json.dumps(content, default=_no_json), strict=True)
    except ValidationError as error:
        raise DataError(f"{path}: damaged ({fault(error)}); {cure}") from error


def _no_json(value: Any) -> Any:
    """TOML's dates, which no record has: as something that no field takes."""
    return {"date": str(value)}


def fault(error: ValidationError) -> str:
    """The first fault that a check of types found, as a person would say it."""
    first: Mapping[str, Any] = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{name} is missing"
    if first["type"] == "string_too_short":
        return f"{name} is empty"
    message = plain_words(str(first["msg"])).removeprefix("Value error, ").replace("Input should", "it should")
    return f"{name} is {short(first['input'])}: {message[0].lower()}{message[1:]}" if name else message


def short(value: Any) -> str:
    """A value as JSON writes it, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
