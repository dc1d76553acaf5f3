"""What earlier commands of the same run have already settled, so that the commands find each other without flags."""

import tomllib
from pathlib import Path
from typing import Any

from gmc.errors import DataError
from gmc.run import holds_nothing

SHARED_SECTIONS = ("seed", "model", "problems", "rollout")


def settled_settings(run: Path, *, resume: bool, overwrite: bool) -> dict[str, Any]:
    """Settings that a new command on `run` starts from.

    A resumed training starts from all that `gmc train` resolved before; anything else from the model, problems, sampling and
    seed that `gmc rollout` (or else `gmc train`) resolved. Empty for a new or overwritten run, and for one in which a failed
    command left nothing but its settings. Raises `DataError` for a damaged file.
    """
    if overwrite or (not resume and holds_nothing(run)):
        return {}
    trained, rolled = run / "settings" / "train.toml", run / "settings" / "rollout.toml"
    if resume and trained.is_file():
        return _settings_in(trained)
    for path in (rolled, trained):
        if path.is_file():
            return {key: value for key, value in _settings_in(path).items() if key in SHARED_SECTIONS}
    return {}


def _settings_in(path: Path) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(path.read_text("utf-8"))["settings"])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}); restore it from a copy, or start another --run") from error
