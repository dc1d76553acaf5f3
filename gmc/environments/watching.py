"""The end of a process in which a call of an environment cannot be ended, whatever is tried.

A signal ends a call that takes too long, unless the call swallows what that raises, ignores the signal, or waits in C without
an end. A thread looks on; what holds Python's lock in C without an end stops that, too.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""A call that swallows what ends it is ended again after this."""

MOST_ENDED = 10
"""So often; then the process ends."""


class Watch:
    """One thread a process, started with the first call, that ends the process when a call is long over its time."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._call: tuple[float, str] | None = None
        self._witness = -1

    @contextlib.contextmanager
    def over(self, what: str, seconds: float) -> Iterator[None]:
        """Watch over a call. what: it, in words; seconds: when something else should have ended it."""
        if self._process != os.getpid():  # a fork has no threads
            self._process, self._witness = os.getpid(), os.open(os.devnull, os.O_RDONLY)
            threading.Thread(target=self._look_on, name="watch", daemon=True).start()
        self._call = (time.monotonic() + seconds, what)
        try:
            yield
        finally:
            self._call = None
            if self._process == os.getpid() and self._lost_descriptors():
                end_process(f"{what} closed files that it had not opened; the process ends, and --resume goes on")

    def _look_on(self) -> None:
        late = 0  # looks in a row, and not seconds: a process that was stopped has had no chance to end the call
        while late <= MOST_ENDED:
            time.sleep(AGAIN_SECONDS)
            call = self._call
            late = late + 1 if call is not None and time.monotonic() > call[0] else 0
        if call is not None:
            end_process(f"{call[1]} cannot be ended, whatever is tried; the process ends, and --resume goes on")

    def _lost_descriptors(self) -> bool:
        """Whether a descriptor that is open for this alone is gone: others are as well, and nothing can be closed in order."""
        try:
            os.fstat(self._witness)
        except OSError:
            return True
        return False


def end_process(why: str) -> None:
    """End it at once with a line: what is on the disk is whole at any time."""
    log.error(why)
    os._exit(1)


watch = Watch()
