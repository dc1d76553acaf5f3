"""What earlier commands of the same run have already settled, so that the commands find each other without flags."""

from pathlib import Path
from typing import Any

from gmc.store.run_directory import holds_nothing
from gmc.store.saved_settings import read_run_settings

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
        return read_run_settings(trained)
    for path in (rolled, trained):
        if path.is_file():
            return {key: value for key, value in read_run_settings(path).items() if key in SHARED_SECTIONS}
    return {}
