"""Layers of settings: defaults < what the run already settled < recipe < flags."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from gmc.config.recipes import find_recipe
from gmc.config.settings import Settings
from gmc.errors import UsageError

Tree = dict[str, Any]


def resolve_settings(
    *,
    settled: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> Settings:
    """One complete `Settings` from all layers, later layers winning.

    settled: what earlier commands of the same run resolved; recipe: a recipe's name or file; flags: dotted key to value, None
    meaning "not given"; assignments: the `key=value` texts of `--set`. Raises `UsageError` naming the layer and the key.
    """
    tree: Tree = {"estimator": {"name": "gmc"}}
    merge(tree, dict(settled or {}))
    if recipe is not None:
        path = find_recipe(recipe)
        merge(tree, read_recipe(path))
        check(tree, f"recipe {path}")
    for key, value in (flags or {}).items():
        if value is not None:
            _require_text(value)
            merge(tree, nest(key, value))
    for assignment in assignments:
        merge(tree, parse_assignment(assignment))
        check(tree, f"--set {assignment}")
    return check(tree, "settings").filled()


def _require_text(value: Any) -> None:
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"{value.encode('utf-8', 'backslashreplace').decode()}: not valid UTF-8 text; type it again")


def merge(base: Tree, layer: Tree) -> None:
    """Merge `layer` into `base` in place. Naming another estimator drops the settings of the one named before."""
    for key, value in layer.items():
        current = base.get(key)
        if isinstance(current, Mapping) and isinstance(value, str) and key in ("estimator", "base"):
            value = {"name": value}
        if isinstance(value, Mapping) and not isinstance(current, Mapping) and current is not None and "name" not in value:
            current = {"name": current}  # `estimator.base = "gmc"` followed by `estimator.base.epsilon = 0.2`
            base[key] = current
        if isinstance(value, Mapping) and isinstance(current, Mapping):
            if key in ("estimator", "base") and value.get("name", current.get("name")) != current.get(
                "name", value.get("name")
            ):
                base[key] = {}
            merge(base[key], dict(value))
        elif isinstance(value, Mapping):
            base[key] = {}
            merge(base[key], dict(value))
        else:
            base[key] = value


def nest(dotted: str, value: Any) -> Tree:
    """`nest("a.b", 1)` is `{"a": {"b": 1}}`."""
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return dict(value)


def parse_assignment(text: str) -> Tree:
    """`key=value` as a tree; the value is read as TOML (numbers, booleans, lists), anything else is text."""
    _require_text(text)
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text}: write it as key=value, for example --set estimator.epsilon=0.4")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    if key.strip() == "estimator" and isinstance(parsed, str):
        key = "estimator.name"
    return nest(key.strip(), parsed)


def read_recipe(path: Path) -> Tree:
    """The settings in a TOML file; raises `UsageError` naming the file and line when it is not TOML."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file ({error})") from error


def check(tree: Tree, origin: str) -> Settings:
    """Validate a tree; the first problem becomes one line that names its key, its value and what is allowed."""
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise UsageError(f"{origin}: {describe(error)}") from error


def describe(error: ValidationError) -> str:
    """The first problem of a validation in one line, with the nearest known key for a misspelt one."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = known_keys(Settings)
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "--dry-run prints every setting"
        return f"unknown setting {key}; {hint}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{key} = {first['input']!r}: {message[0].lower()}{message[1:]}"


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted key of a settings model."""
    keys = []
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            keys += known_keys(annotation, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys
