"""Whose file is it? Recipes, sweeps and studies are all TOML files under recipes/, each for another command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gmc.config.settings import RunSettings
from gmc.errors import UsageError

RECIPE, SWEEP, TOY, EXACT = "gmc train --recipe", "gmc lab sweep", "gmc lab toy", "gmc lab exact"
_OF_TOY, _OF_EXACT = {"delays", "rates", "optimizers", "updates"}, {"directions", "drifts", "vocabulary", "tokens", "rewarded"}


def command_of(tree: Mapping[str, Any]) -> str | None:
    """The command that a file is for, None where its keys do not tell."""
    if isinstance(grids := tree.get("grid"), list):
        keys = {key for grid in grids if isinstance(grid, Mapping) for key in grid}
        return TOY if keys & _OF_TOY else EXACT if keys & _OF_EXACT else None
    if tree.keys() & {"arms", "seeds", "axes"}:
        return SWEEP
    return RECIPE if tree and tree.keys() <= RunSettings.model_fields.keys() else None


def require_file_of(command: str, tree: Mapping[str, Any], path: Path) -> None:
    """Raise `UsageError` for a file that is another command's, naming that command."""
    found = command_of(tree)
    if found is not None and found != command:
        raise UsageError(f"{path}: is no file for {command}; {found} {path} takes it")
