"""Finding recipes: TOML files whose names tell the experiment."""

from pathlib import Path

import gmc
from gmc.errors import UsageError, did_you_mean, no_file


def recipes_directory() -> Path:
    """Where the shipped recipes lie: inside an installed package, or at the top of a source checkout."""
    package = Path(gmc.__file__).parent
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def list_recipes() -> list[str]:
    """Names of the shipped recipes."""
    return sorted(file.stem for file in recipes_directory().glob("*.toml"))


def find_recipe(name: str) -> Path:
    """The file of a recipe given by name or path. Raises `UsageError` listing the names when there is none."""
    path = Path(name)
    if path.suffix == ".toml" or path.parent != Path():
        if path.is_file():
            return path
        raise UsageError(f"--recipe {name}: {no_file(path)}")
    shipped = recipes_directory() / f"{name}.toml"
    if shipped.is_file():
        return shipped
    names = ", ".join(list_recipes())
    near = did_you_mean(name, list_recipes())
    raise UsageError(f"--recipe {name}: no such recipe{near or ';'} there are {names} (or give a .toml file)")
