"""Dataclass fields that say what they mean: a command makes its options of them, and one place checks their bounds."""

import math
from dataclasses import MISSING, Field, field, fields
from typing import Any

from gmc.errors import UsageError


def described(meaning: str, *, least: float | None = None, default: Any = MISSING, **facts: Any) -> Any:
    """A field that documents itself. least: the smallest value; facts: above, flag, unit, default_text, panel, envvar."""
    return field(default=default, metadata={"meaning": meaning, "least": least, **facts})


def flag_of_field(each: "Field[Any]") -> str:
    """A field as it is typed."""
    return str(each.metadata.get("flag", f"--{each.name.replace('_', '-')}"))


def check_bounds(instance: Any) -> None:
    """Raise `UsageError`, with the flag, for the first value that is not finite or outside its bounds."""
    for each in fields(instance):
        value, least, above = getattr(instance, each.name), each.metadata.get("least"), each.metadata.get("above")
        if value is None:
            continue
        flag, unit = flag_of_field(each), each.metadata.get("unit", "")
        if least is not None and not (math.isfinite(value) and value >= least):
            raise UsageError(f"{flag} {value:g}: must be at least {least:g}{unit}")
        if above is not None and not (math.isfinite(value) and value > above):
            raise UsageError(f"{flag} {value:g}: must be above {above:g}")
