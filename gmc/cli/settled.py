"""What earlier commands of the same run have already settled, so that the commands find each other without flags."""

import tomllib
from pathlib import Path
from typing import Any

SHARED_SECTIONS = ("seed", "model", "problems", "rollout")


def settled_settings(run: Path, *, resume: bool, overwrite: bool) -> dict[str, Any]:
    """Settings that a new command on `run` starts from.

    A resumed training starts from all that `gmc train` resolved before; anything else from the model, problems, sampling and
    seed that `gmc rollout` (or else `gmc train`) resolved. Empty for a new or overwritten run.
    """
    if overwrite:
        return {}
    trained, rolled = run / "settings" / "train.toml", run / "settings" / "rollout.toml"
    if resume and trained.is_file():
        return _settings_in(trained)
    for path in (rolled, trained):
        if path.is_file():
            return {key: value for key, value in _settings_in(path).items() if key in SHARED_SECTIONS}
    return {}


def _settings_in(path: Path) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))["settings"]
    return settings
