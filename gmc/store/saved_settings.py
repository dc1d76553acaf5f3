"""The settings that a command saved in a run, read back strictly."""

import tomllib
from pathlib import Path
from typing import Any

from gmc.errors import DataError


def read_run_settings(path: Path) -> dict[str, Any]:
    """The settings in RUN/settings/COMMAND.toml. Raises `DataError` naming the file when it is missing or damaged."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: missing or damaged ({error}); restore it from a copy, or start another --run") from error
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise DataError(f"{path}: damaged (it has no table [settings]); restore it from a copy, or start another --run")
    return settings
