"""What earlier commands of the same run have already resolved, so that the commands find each other without flags."""

from collections.abc import Callable
from pathlib import Path

from gmc.config.layers import RUN, Layers, lay
from gmc.errors import UsageError
from gmc.store.run_directory import RUN_FILE, RunDirectory, holds_nothing
from gmc.store.saved_settings import SavedSettings, read_saved_settings

SHARED_SECTIONS = ("seed", "model", "problems", "reward", "rollout")
DEVICE = "device"
CODE = ("reward.code", "rollout.environment_code")
"""Settings that hold hashes of a stranger's files, each as "HASH FILE"."""


def earlier_settings(run: Path, *, resume: bool, overwrite: bool, command: str = "") -> Layers:
    """Settings that a new command on `run` starts from.

    A resumed training starts from all that `gmc train` resolved before; anything else from the model, problems, sampling and
    seed that `gmc rollout` (or else `gmc train`) resolved, but for what was chosen for the device: that is chosen again. Empty
    for a new or overwritten run, and for one in which a failed command left nothing but its settings. Raises `DataError` for a
    damaged file, `UsageError` for resuming what gmc 0.1 saved, and what `command` ("train", "rollout") has not saved.
    """
    if resume and not overwrite:
        RunDirectory.open(run)
        _require_saved(run, command)
    if overwrite or (not resume and holds_nothing(run)):
        return Layers()
    trained, rolled = run / "settings" / "train.toml", run / "settings" / "rollout.toml"
    if resume and trained.is_file():
        return _resumable(trained)
    for path in (rolled, trained):
        if path.is_file():
            layers = _resumable(path) if resume else _without_device(_layers(path, read_saved_settings(path)))
            if path == rolled and trained.is_file():
                _take_newer_code(layers, rolled, trained)
            return layers.only(lambda key: key.partition(".")[0] in SHARED_SECTIONS)
    return Layers()


def _take_newer_code(layers: Layers, rolled: Path, trained: Path) -> None:
    """Put hashes of code that `gmc train` saved in place of those of `gmc rollout`, where it saved later: somebody may have
    gone on with a repaired file by --set reward.code=auto, and need not say so again. File by file, since the commands may have
    had other rewards."""
    if trained.stat().st_mtime_ns < rolled.stat().st_mtime_ns:
        return
    newer = read_saved_settings(trained).values
    for key in CODE:
        accepted = {line.partition(" ")[2]: line for line in newer.get(key, ())}
        if key in layers.values:
            layers.values[key] = [accepted.get(line.partition(" ")[2], line) for line in layers.values[key]]


def _require_saved(run: Path, command: str) -> None:
    """A command that was killed before it saved its settings cannot be gone on with: others would be taken for them."""
    path = run / "settings" / f"{command}.toml"
    if not command or path.is_file() or not (run / RUN_FILE).is_file():
        return
    if command == "rollout" and (run / "settings" / "train.toml").is_file():
        return  # training sampled there, with settings that it saved
    if command == "train" and RunDirectory.open(run).has_trained:
        raise UsageError(f"{path}: missing, and --resume needs what it says; restore it from a copy, or start another --run")
    raise UsageError(
        f"{run}: gmc {command} was stopped there before it saved its settings, so --resume does not know them. Give the whole "
        "command again without --resume"
    )


def goes_on(run: Path, command: str) -> bool:
    """Whether --auto-resume of `command` ("train", "rollout") goes on with `run` rather than starts it."""
    return not holds_nothing(run) and (run / "settings" / f"{command}.toml").is_file()


def trainers_settings(path: Path) -> Layers:
    """What `gmc train` resolved in the settings file `path`, for a process on a machine of its own. Raises as above."""
    return _without_device(_resumable(path))


def _resumable(path: Path) -> Layers:
    saved = read_saved_settings(path)
    if saved.origins is None:
        raise UsageError(
            f"{path}: gmc 0.1 saved it, without the settings it left at their defaults, so this version cannot go on with the "
            "run; gmc eval and gmc status can read it. Go on with gmc 0.1, or start another --run"
        )
    return _layers(path, saved)


def _layers(path: Path, saved: SavedSettings) -> Layers:
    layers = Layers(saved_in=str(path))
    origins = saved.origins or {}
    layers.values |= saved.values
    layers.origins |= {key: RUN + origins.get(key, "gmc 0.1").removeprefix(RUN) for key in saved.values}
    return layers.only(lambda key: layers.values[key] != "auto" or key.startswith("estimator."))  # gmc 0.1 saved "auto"


def traced(error: UsageError, layers: Layers, again: Callable[[Layers], object]) -> UsageError:
    """The same refusal, with the file in which an earlier command saved the refused value, where nobody said it now.

    again: what refused. A value is the file's when what the file says is refused in the same words.
    """
    if not layers.saved_in or layers.saved_in in str(error):
        return error
    try:
        again(lay(earlier=layers.as_saved))
    except UsageError as same:
        if str(same).startswith(str(error)):
            return type(error)(f"{error} (saved in {layers.saved_in})")
    return error


def _without_device(layers: Layers) -> Layers:
    return layers.only(lambda key: layers.origins[key] != RUN + DEVICE)
