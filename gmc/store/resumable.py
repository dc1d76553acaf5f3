"""Whether a run that has trained still has the checkpoints to go on from; looks only, and comes before anything is changed.

Without a checkpoint a resumed run begins again at update 0 and cuts its logs back to nothing. That is right for a run that was
killed before its first one, and the loss of a training whose checkpoints are only out of reach.
"""

import math
import os
from pathlib import Path

from gmc.errors import DataError
from gmc.store.checkpoints import has_checkpoint
from gmc.store.logs import GrowingLog
from gmc.store.policies import newest_version
from gmc.store.run_directory import RunDirectory
from gmc.store.saved_settings import read_run_settings


def require_checkpoints(run: RunDirectory) -> None:
    """Raise `DataError` in one line when the run's checkpoints are out of reach, or gone though there must have been some.

    Training makes the folder before its first update, and publishes a policy after the checkpoint that can restore it.
    """
    folder, policy, made = run.checkpoints, newest_version(run.policies), GrowingLog(run.metrics).updates()
    published = f"policy {policy[1].name} is published" if policy and policy[0] else ""
    logged = f"{made} updates are in {run.metrics.name}" if made else ""
    try:
        os.listdir(folder)
    except FileNotFoundError as error:
        if os.path.lexists(folder):
            raise _out_of_reach(folder, f"it points to {os.readlink(folder)}, which is not there") from error
        if published or logged:
            again = "" if published else f", make an empty one (mkdir {folder}) to begin again at update 0"
            raise _gone(folder, f"no such folder, though {published or logged}; restore it from a copy{again}") from error
        return
    except OSError as error:
        raise _out_of_reach(folder, error.strerror or str(error)) from error
    if has_checkpoint(folder):
        return
    if published or made > _most_without_a_checkpoint(run):
        raise _gone(folder, f"no complete checkpoint in it, though {published or logged}; restore one from a copy")


def _most_without_a_checkpoint(run: RunDirectory) -> float:
    """Updates that the log can hold while no checkpoint is durable: the second one is begun when the first is on the disk."""
    settings = run.settings("train")
    return 2 * int(read_run_settings(settings)["train"]["checkpoint_every"]) if settings.is_file() else math.inf


def _out_of_reach(folder: Path, why: str) -> DataError:
    return DataError(
        f"{folder}: cannot be read ({why}), and without it --resume would begin again at update 0; mount the disk, or restore "
        "the folder that holds the checkpoints. Nothing was changed."
    )


def _gone(folder: Path, what: str) -> DataError:
    return DataError(f"{folder}: {what}, or start anew with --overwrite or another --run. Nothing was changed.")
