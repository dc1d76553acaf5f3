"""How a process ends when the one that started it is gone: helpers by a pipe, the ranks of torchrun by the kernel's signal.

A helper ends however its starter died and whatever it does itself. The starter keeps one end of a pipe open and never writes.
When the kernel closes it, Linux kills the helper's process group: code that hangs, even in C, cannot delay that.
PR_SET_PDEATHSIG would be shorter, but it fires when the starting thread ends. Elsewhere a thread waits for the end of the pipe,
which needs Python to go on.
"""

import ctypes
import fcntl
import os
import select
import signal
import sys
import threading

VARIABLE = "GMC_LIFELINE"
"""Environment variable: the helper's end of the pipe."""

TORCHRUN_ITSELF = "TORCHELASTIC_RUN_ID"
"""What torchrun puts into the environment of each process it starts, and other launchers do not."""

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """The starter's end. Give `environment` and `pass_fds=[reader]` to the helper, which starts a session of its own."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self.environment = {VARIABLE: str(self.reader)}

    def started(self) -> None:
        """The helper has its end: close the copy of it here."""
        os.close(self.reader)

    def close(self) -> None:
        """Let go: a helper that still lives is killed."""
        os.close(self._writer)


def hold_on() -> None:
    """Called by the helper first: end with the starter, with everything in this process group. Without a starter, nothing."""
    said = os.environ.pop(VARIABLE, None)
    if said is None:
        return
    reader = int(said)
    os.set_inheritable(reader, False)
    if sys.platform == "linux":
        fcntl.fcntl(reader, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([reader], [], [], 0)[0]:  # it closed before that
            _end()
    else:
        threading.Thread(target=_wait, args=(reader,), daemon=True).start()


def stop_with_launcher() -> None:
    """Ask the kernel for SIGTERM when torchrun dies, however that dies: nobody could stop its ranks any more, and they hold the
    run and the GPUs. Linux alone has this. Not asked for under another launcher: the signal comes when the thread ends that
    started this process, which with torchrun is the main one. Called before torch is imported, which takes seconds.
    """
    if sys.platform.startswith("linux") and TORCHRUN_ITSELF in os.environ:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _wait(reader: int) -> None:
    os.read(reader, 1)
    _end()


def _end() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
