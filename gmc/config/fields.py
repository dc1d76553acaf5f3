"""What a settings field says about itself: what it allows, its default, and what a default hangs on. One place for all uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

AUTO = "auto"
"""Said of a setting with a derived default: choose it again."""

EMBEDDED = "embedded"
_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


@dataclass(frozen=True)
class Derived:
    """A default that another setting decides. on: that setting's key; origin: who decides, in a word; text: it in words."""

    on: str
    origin: str
    text: str


@dataclass(frozen=True)
class ByModel(Derived):
    """A default of the laboratory for the embedded model, and another (arXiv 2610.01896's) for any other model."""

    embedded: float
    other: float

    def choose(self, source: str) -> float:
        """The default for a model."""
        return self.embedded if source == EMBEDDED else self.other


def by_model(embedded: float, other: float) -> ByModel:
    """Declares a default that the model decides."""
    return ByModel("model.source", "model", f"{embedded:g} {EMBEDDED}, else {other:g}", embedded, other)


def derived(field: FieldInfo) -> Derived | None:
    """What decides a field's default, None where it has a plain one."""
    return next((item for item in field.metadata if isinstance(item, Derived)), None)


def leaf_fields(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Every setting by its dotted key, in the order of the model."""
    fields: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields |= leaf_fields(annotation, f"{prefix}{name}.")
        else:
            fields[prefix + name] = field
    return fields


def default_text(field: FieldInfo) -> str:
    """A field's default in words: "8", "64 embedded, else 4096", "true"."""
    choice = derived(field)
    return choice.text if choice else _value_text(field.get_default(call_default_factory=True))


def allowed_values(field: FieldInfo) -> str:
    """What a setting accepts, in words: "> 0 or auto", "one of sqrt, linear", "true or false"."""
    return _allowed(field.annotation, field.metadata)


def bounds_text(field: FieldInfo) -> str:
    """The range of a number, in words: "≥ 0 and < 1"; empty where there is none."""
    return _bounds(field.metadata)


def _bounds(metadata: list[Any]) -> str:
    # The constraint objects are those of annotated-types: each holds its bound under the constraint's own name.
    found = [f"{sign} {_number(getattr(item, key))}" for item in _flat(metadata) for key, sign in _BOUNDS if hasattr(item, key)]
    return " and ".join(found)


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:,.10g}"


def _allowed(annotation: Any, metadata: list[Any]) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        return _allowed(inner, [*extra, *metadata])
    if origin in (Union, UnionType):
        return " or ".join(_allowed(arm, metadata) for arm in get_args(annotation))
    if origin is list:
        return f"a list, each {_allowed(get_args(annotation)[0], [])}"
    if origin in (dict, Mapping):
        return "a table"
    if options := choices(annotation):
        return options[0] if len(options) == 1 else "one of " + ", ".join(options)
    if annotation is type(None):
        return "none"
    if annotation is bool:
        return "true or false"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.__doc__.split("\n")[0] if annotation.__doc__ else annotation.__name__
    kind = {int: "an integer", float: "a number", str: "text"}.get(annotation, str(annotation))
    return f"{kind} {bounds}" if (bounds := _bounds(metadata)) else kind


def choices(annotation: Any) -> list[str]:
    """The words a field accepts, empty where it is not a choice of words."""
    if get_origin(annotation) is Literal:
        return [str(option) for option in get_args(annotation)]
    members = getattr(annotation, "__members__", None)
    return [str(member.value) for member in members.values()] if members else []


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
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, Mapping):
        return str(value.get("name", dict(value)))
    return "none" if value is None else str(value) or "empty"
