"""One thread that finishes batches while the next ones are sampled: one at a time, in the order in which they were given."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Finisher(Generic[Result]):
    """Does one job at a time in a thread of its own. What a job returns or raises comes out of `take`, in the caller's thread.

    The thread is the same for all jobs, since processes that a job starts may be made to die with their thread, and a daemon,
    so that a second Ctrl-C need not wait for what a job waits for.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Result], Future[Result]]] = queue.SimpleQueue()
        self._current: Future[Result] | None = None
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a job was given whose result nobody has taken."""
        return self._current is not None

    def give(self, job: Callable[[], Result]) -> None:
        """Have a job done. The result of the one before must have been taken."""
        assert self._current is None
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="finisher", daemon=True)
            self._thread.start()
        self._current = Future()
        self._jobs.put((job, self._current))

    def take(self, *, wait: bool) -> Result | None:
        """What the job came to, None while there is none or, without `wait`, while it is in work. Raises what it raised."""
        current = self._current
        if current is None or not (wait or current.done()):
            return None
        try:
            return current.result()
        finally:
            if current.done():
                self._current = None

    def _work(self) -> None:
        while True:
            job, result = self._jobs.get()
            try:
                result.set_result(job())
            except BaseException as error:
                result.set_exception(error)
