"""Settings of a rule in words: for `gmc estimators show`, the docs and one-line errors."""

from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gmc.estimators.base import Estimator

_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


@dataclass(frozen=True)
class SettingDoc:
    """One setting: its name, default and allowed values in words, and what it does."""

    name: str
    default: str
    allowed: str
    description: str


def describe_settings(rule: type[Estimator]) -> list[SettingDoc]:
    """Every setting of a rule, in the order of its model."""
    return [
        SettingDoc(name, _value_text(field.default), allowed_values(field), field.description or "")
        for name, field in rule.Settings.model_fields.items()
    ]


def allowed_values(field: FieldInfo) -> str:
    """What a setting accepts, in words: "> 0 or auto", "one of sqrt, linear", "true or false"."""
    return _allowed(field.annotation, field.metadata)


def explain_settings_error(rule: type[Estimator], error: ValidationError, path: str) -> str:
    """One line for the first problem: the setting, the value given, and what is allowed."""
    problem = error.errors()[0]
    fields = rule.Settings.model_fields
    if not problem["loc"]:
        return f"{path} ({rule.name}): {problem['msg'].removeprefix('Value error, ')}"
    key = str(problem["loc"][0])
    if key not in fields:
        listing = ", ".join(fields) if fields else "no settings"
        return f"{path}.{key}: {rule.name} has no such setting; it has {listing}"
    description = fields[key].description
    meaning = f" ({description})" if description else ""
    # The value of the whole setting: for a union, pydantic reports each arm's own view of it.
    return f"{path}.{key}: {problem['input']!r} is not allowed; allowed: {allowed_values(fields[key])}{meaning}"


def _allowed(annotation: Any, metadata: list[Any]) -> str:
    origin = get_origin(annotation)
    if origin is not None and hasattr(annotation, "__metadata__"):
        inner, *extra = get_args(annotation)
        return _allowed(inner, [*extra, *metadata])
    if origin in (Union, UnionType):
        return " or ".join(_allowed(arm, metadata) for arm in get_args(annotation))
    if origin is Literal:
        options = [str(option) for option in get_args(annotation)]
        return options[0] if len(options) == 1 else "one of " + ", ".join(options)
    if annotation is type(None):
        return "none"
    if annotation is bool:
        return "true or false"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.__doc__.split("\n")[0] if annotation.__doc__ else annotation.__name__
    kind = {int: "an integer", float: "a number", str: "text"}.get(annotation, str(annotation))
    # The constraint objects are those of annotated-types: each holds its bound under the constraint's own name.
    bounds = [f"{sign} {getattr(item, key):g}" for item in _flat(metadata) for key, sign in _BOUNDS if hasattr(item, key)]
    return " and ".join([f"{kind} {bounds[0]}", *bounds[1:]]) if bounds else kind


def _flat(metadata: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for item in metadata:
        flat.extend(item.metadata if isinstance(item, FieldInfo) else [item])
    return flat


def _value_text(value: Any) -> str:
    if isinstance(value, BaseModel):
        return str(getattr(value, "name", value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
