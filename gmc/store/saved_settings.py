"""The settings that a command saved in a run, with the origin of each and library versions, read back strictly."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from gmc.config.layers import flatten
from gmc.config.settings import RunSettings, settings_tree
from gmc.errors import DataError
from gmc.store.files import write_text

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
    settings: dict[str, Any] = _table(path, _content(path), "settings")
    return settings


def read_saved_settings(path: Path) -> SavedSettings:
    """The same with origins. Raises `DataError` also when a value has no origin, or an origin no value."""
    content = _content(path)
    values = dict(flatten(_table(path, content, "settings")))
    if "origins" not in content:
        return SavedSettings(values, None)
    origins = _table(path, content, "origins")
    nulls = {key: None for key in origins if key not in values and key.startswith("estimator.")}
    values |= nulls
    for key in sorted(values.keys() ^ origins.keys()):
        lacks = "value" if key in origins else "origin"
        raise DataError(f"{path}: damaged (its setting {key} has no {lacks}); {CURE}")
    for key, origin in origins.items():
        if not isinstance(origin, str):
            raise DataError(f"{path}: damaged (the origin of {key} is {origin!r}); {CURE}")
    return SavedSettings(values, origins)


def read_versions(path: Path) -> dict[str, str]:
    """The library versions in a settings file. Raises `DataError` when it is missing or damaged."""
    versions: dict[str, str] = _table(path, _content(path), "versions")
    return versions


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: missing or damaged ({error}); {CURE}") from error


def _table(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name)
    if not isinstance(table, dict):
        raise DataError(f"{path}: damaged (it has no table [{name}]); {CURE}")
    return table
