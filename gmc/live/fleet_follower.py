"""One follower of a fleet as a process that ends with whoever started it, so that none is left holding a GPU."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gmc.lifeline import Lifeline
from gmc.store.run_directory import RUN_FILE

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
    is how Ray cancels, ends the follower in good order. When this process dies, the follower is killed with all that it has
    started: one that only stopped after its batch would hold a GPU that Ray has given away, and its claim ends with its lease.
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
    lifeline = Lifeline()
    with log.open("ab") as file:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=os.environ | lifeline.environment,
            pass_fds=[lifeline.reader],
            start_new_session=True,
        )
        lifeline.started()
        try:
            while child.poll() is None:
                time.sleep(POLL_SECONDS)
        finally:
            _end(child)
            lifeline.close()
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


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _host() -> str:
    return socket.gethostname()
