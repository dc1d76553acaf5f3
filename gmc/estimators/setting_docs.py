"""Settings of a rule in words: for `gmc estimators show`, the docs and one-line errors."""

from dataclasses import dataclass

from pydantic import ValidationError

from gmc.config.fields import allowed_values, default_text
from gmc.errors import did_you_mean
from gmc.estimators.base import Estimator


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
        SettingDoc(name, default_text(field), allowed_values(field), field.description or "")
        for name, field in rule.Settings.model_fields.items()
    ]


def explain_settings_error(rule: type[Estimator], error: ValidationError, path: str) -> str:
    """One line for the first problem: the setting, the value given, and what is allowed."""
    problem = error.errors()[0]
    fields = rule.Settings.model_fields
    if not problem["loc"]:
        return f"{path} ({rule.name}): {problem['msg'].removeprefix('Value error, ')}"
    key = str(problem["loc"][0])
    if key not in fields:
        listing = ", ".join(fields) if fields else "no settings"
        return f"{path}.{key}: {rule.name} has no such setting; it has {listing}{did_you_mean(key, fields)}"
    description = fields[key].description
    meaning = f" ({description})" if description else ""
    if problem["type"] == "missing":
        return f"{path}.{key}: {rule.name} needs it{meaning}; allowed: {allowed_values(fields[key])}; add --set {path}.{key}=…"
    # The value of the whole setting: for a union, pydantic reports each arm's own view of it.
    return f"{path}.{key}: {problem['input']!r} is not allowed; allowed: {allowed_values(fields[key])}{meaning}"
