"""Writing to the disk while training goes on: one job at a time, on copies that nothing else touches."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

log = logging.getLogger(__name__)


class BackgroundWriter:
    """At most one job is in work. What it raises is raised in the caller's thread, at the next call.

    A job may come with a `then`, which is called in the caller's thread once the job has succeeded.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._job: Future[None] | None = None
        self._then: Callable[[], None] = _nothing

    def start(self, job: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Do a job after the one before it, for which this waits."""
        self.wait()
        self._then = then or _nothing
        self._job = self._pool.submit(job)

    def look(self) -> None:
        """Take note of a job that has ended; raises what it raised."""
        if self._job is not None and self._job.done():
            self.wait()

    def wait(self) -> None:
        """Return when nothing is in work. Raises what the last job raised."""
        if self._job is not None:
            try:
                self._job.result()
            finally:
                self._job = None
            self._then()

    def close(self) -> None:
        """Let the last job end; an error that nobody has heard of is logged."""
        self._pool.shutdown()
        if self._job is not None and (error := self._job.exception()) is not None:
            log.error("%s", error)


def _nothing() -> None:
    pass
