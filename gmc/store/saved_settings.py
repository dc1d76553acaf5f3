"""The settings that a command saved in a run, with the origin of each and library versions, read back strictly."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from gmc.config.layers import check, flatten, unflatten
from gmc.config.settings import RunSettings, settings_tree
from gmc.errors import DataError, UsageError, unreadable
from gmc.store.files import write_text
from gmc.store.records import SHOWN, short

CURE = "restore it from a copy, or start another --run"


@dataclass(frozen=True)
class SavedSettings:
    """What RUN/settings/COMMAND.toml holds. values: by dotted key; origins: of each, None in a file of gmc 0.1, whose values
    are incomplete. A rule's setting that is None has an origin and no value in the file, for TOML has no null."""

    values: Mapping[str, Any]
    origins: Mapping[str, str] | None


def write_run_settings(path: Path, settings: RunSettings, versions: Mapping[str, str]) -> None:
    """Write every setting in force, its origin, and the versions of libraries."""
    content = {
        "hash": settings.hash,
        "settings": settings_tree(settings),
        "origins": dict(settings.origins),
        "versions": dict(versions),
    }
    write_text(path, tomli_w.dumps(content))


def read_run_settings(path: Path) -> dict[str, Any]:
    """The tree of settings in RUN/settings/COMMAND.toml. Raises `DataError` naming the file when it is missing or damaged."""
    content = _content(path)
    _saved(path, content)
    settings: dict[str, Any] = _table(path, content, "settings")
    return settings


def read_saved_settings(path: Path) -> SavedSettings:
    """The same, flat and with origins. Both refuse a value that is not allowed or has no origin, and an origin without one."""
    return _saved(path, _content(path))


def _saved(path: Path, content: Mapping[str, Any]) -> SavedSettings:
    values = dict(flatten(_table(path, content, "settings")))
    if "origins" not in content:
        _require_allowed(path, values)
        return SavedSettings(values, None)
    origins = _table(path, content, "origins")
    nulls = {key: None for key in origins if key not in values and key.startswith("estimator.")}
    values |= nulls
    for key in sorted(values.keys() ^ origins.keys()):
        lacks = "value" if key in origins else "origin"
        raise DataError(f"{path}: damaged (its setting {_cut(key)} has no {lacks}); {CURE}")
    for key, origin in origins.items():
        if not isinstance(origin, str):
            raise DataError(f"{path}: damaged (the origin of {_cut(key)} is {short(origin)}); {CURE}")
    _require_allowed(path, values)
    return SavedSettings(values, origins)


def _cut(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[:SHOWN]}…"


def _require_allowed(path: Path, values: Mapping[str, Any]) -> None:
    """Each value as the settings have it; those of a rule are the rule's affair, but it has a name."""
    try:
        check(unflatten({key: value for key, value in values.items() if value is not None}), str(path))
    except UsageError as error:
        raise DataError(f"{error}; {CURE}") from error
    if not (isinstance(name := values.get("estimator.name"), str) and name):
        raise DataError(f"{path}: damaged (estimator.name is no name of a rule); {CURE}")


@contextmanager
def naming_saved(path: Path | str) -> Iterator[None]:
    """Have a refusal within of what was read from `path` name it."""
    try:
        yield
    except UsageError as error:
        raise type(error)(f"{error} (saved in {path})") from error


def read_versions(path: Path) -> dict[str, str]:
    """The library versions in a settings file. Raises `DataError` when it is missing or damaged."""
    versions: dict[str, str] = _table(path, _content(path), "versions")
    return versions


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: missing or damaged ({unreadable(error)}); {CURE}") from error


def _table(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name)
    if not isinstance(table, dict):
        raise DataError(f"{path}: damaged (it has no table [{name}]); {CURE}")
    return table
