"""What a command that was refused leaves of a run that it started: nothing."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from gmc.errors import GmcError
from gmc.store.run_directory import RUN_FILE, RunDirectory

STARTING = {RUN_FILE, "settings", "lock"}
"""What a command writes into a run before its first result."""


@contextlib.contextmanager
def nothing_left_when_refused(path: Path, *, own: frozenset[str] = frozenset()) -> Iterator[None]:
    """Within the context, an error takes away the run in the folder `path` that was started there meanwhile, and the folder if
    it was not there before, unless the run holds more than what a command writes before its first result.

    Logs stay, and the run with them: an error may name them. own: further files of the command, as paths below `path`. The
    caller does not hold the run's lock any more when the context ends; a run that another process has locked stays.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    before = _record(path)
    try:
        yield
    except Exception:
        with contextlib.suppress(GmcError, OSError):  # the error that led here is the one to tell
            if _record(path) not in (None, before):
                _take_away(path, missing, own)
        raise


def _record(path: Path) -> bytes | None:
    """What run.toml holds, None where there is none to read."""
    try:
        return (path / RUN_FILE).read_bytes()
    except OSError:
        return None


def _take_away(path: Path, missing: list[Path], own: frozenset[str]) -> None:
    with RunDirectory.open(path).lock():
        files = [entry.relative_to(path) for entry in path.rglob("*") if not entry.is_dir() or entry.is_symlink()]
        if any(file.parts[0] not in STARTING and file.as_posix() not in own for file in files):
            return
        for entry in sorted(path.iterdir(), key=lambda entry: entry.name == RUN_FILE):
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    for folder in missing:
        folder.rmdir()
