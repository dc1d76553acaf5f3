"""One follower of a fleet as a process that ends with whoever started it, so that none is left holding a GPU."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gmc.store.run_directory import RUN_FILE

_PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.2
GRACE_SECONDS = 30.0
"""How long a follower that is told to stop may take: vLLM needs some seconds to end its workers."""


@dataclass(frozen=True)
class Ended:
    """How one follower process ended. code: its exit status, minus the signal's number for one that was killed; said: its
    last line; host: where it ran; seconds: how long."""

    code: int
    said: str
    host: str
    seconds: float


def follow_once(run: Path, arguments: Sequence[str], log: Path) -> Ended:
    """Run `gmc rollout --follow` to its end on this machine; everything it prints goes to the end of `log`.

    A machine that does not see the run is refused instead of waiting for another folder of that name. An interruption, which
    is how Ray cancels, ends the follower in good order.
    """
    if not (run / RUN_FILE).is_file():
        return Ended(
            2, f"{run}: not seen on this machine; a fleet needs one folder under the same path everywhere", _host(), 0.0
        )
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("ab").close()
    except OSError as error:
        return Ended(2, f"{log}: {error.strerror}; followers write their shards beside it", _host(), 0.0)
    started = time.monotonic()
    command = [sys.executable, "-m", "gmc", "rollout", "--follow", "--run", str(run), *arguments]
    with log.open("ab") as file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, preexec_fn=_dying_with(os.getpid())
        )
        try:
            while child.poll() is None:
                time.sleep(POLL_SECONDS)
        finally:
            _end(child)
    return Ended(child.returncode, _last_line(log), _host(), time.monotonic() - started)


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _dying_with(parent: int) -> Callable[[], None] | None:
    """What a child does before it becomes the follower: ask the kernel to kill it when its parent dies, however that dies.

    At once, for a follower that only stops after its batch would hold a GPU that Ray has given away; its claim ends with its
    lease. Linux alone has this.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return ask


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _host() -> str:
    return socket.gethostname()
