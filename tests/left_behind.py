"""What somebody's code leaves behind: temporary folders, and processes however far they have gone from their parents."""

import ctypes
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
PATIENCE_SECONDS = 5


@contextmanager
def adopting() -> Iterator[None]:
    """Within it, whatever has lost its parent becomes a child of this process, also from a session of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = _children()
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for child in _children() - before:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)  # adopted and dead


def left_behind(before: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    """Folders of code, living children of this process, and processes whose command, surroundings or folder name such a folder.

    before: what was there. What has just been killed gets some seconds to be gone.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    quiet = False
    while (found := (_folders() | _processes()) - before) or not quiet:
        if found and time.monotonic() > deadline:
            return found
        quiet = not found  # twice in a row: between two looks a parent may end, and its child be adopted
        time.sleep(0.05)
    return found


def _folders() -> set[str]:
    return {str(path) for path in Path(tempfile.gettempdir()).glob("gmc-*")}


def _processes() -> set[str]:
    place = os.fsencode(Path(tempfile.gettempdir()) / "gmc-code-")
    children, found = _children(), set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        with suppress(OSError):  # it has just ended, or is another user's
            if (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                continue
            said = b"".join((process / name).read_bytes() for name in ("cmdline", "environ"))
            if int(process.name) in children or place in said + os.fsencode(os.readlink(process / "cwd")):
                found.add(f"process {process.name}: {said[:80]!r}")
    return found


def _children() -> set[int]:
    return {int(child) for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}
