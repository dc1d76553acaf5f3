"""A pipe that ends a helper process when the process that started it is gone, however that died and whatever the helper does.

The starter keeps one end open and never writes. When the kernel closes it, Linux kills the helper's process group: code that
hangs, even in C, cannot delay that. PR_SET_PDEATHSIG would be shorter, but it fires when the starting thread ends. Elsewhere a
thread waits for the end of the pipe, which needs Python to go on.
"""

import fcntl
import os
import select
import signal
import sys
import threading

VARIABLE = "GMC_LIFELINE"
"""Environment variable: the helper's end of the pipe."""


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


def _wait(reader: int) -> None:
    os.read(reader, 1)
    _end()


def _end() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
