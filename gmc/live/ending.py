"""How a live run says that it is over, so that its followers stop by themselves."""

from gmc.store.files import fsync_directory, write_json
from gmc.store.run_directory import RunDirectory


def mark_ended(run: RunDirectory, updates: int) -> None:
    """Say that all `updates` planned updates are done."""
    write_json(run.ended, {"run_id": run.run_id, "updates": updates})


def unmark_ended(run: RunDirectory) -> None:
    """Take it back: training goes on."""
    if run.ended.exists():
        run.ended.unlink()
        fsync_directory(run.path)


def has_ended(run: RunDirectory) -> bool:
    """Whether the trainer has made all its updates."""
    return run.ended.is_file()
