"""Waiting for servers without being deaf: requests in threads that nobody must wait for, and signals that end a wait."""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import FrameType
from typing import Any, TypeVar

from gmc.errors import GmcError

HEEDED = (signal.SIGINT, signal.SIGTERM)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def side_by_side(
    tasks: Mapping[Key, Callable[[], Value]], slow: Callable[[], None] = lambda: None, slow_seconds: float = 1.0
) -> dict[Key, Value]:
    """What the tasks give, all at once. slow: called when they have taken `slow_seconds`.

    An error of a task, or one raised by a signal meanwhile, is raised at once: the threads left do not keep the process.
    """
    ended: queue.SimpleQueue[tuple[Key, Value | None, BaseException | None]] = queue.SimpleQueue()

    def work(key: Key, task: Callable[[], Value]) -> None:
        try:
            ended.put((key, task(), None))
        except BaseException as error:
            ended.put((key, None, error))

    for key, task in tasks.items():
        threading.Thread(target=work, args=(key, task), name="server-request", daemon=True).start()
    values: dict[Key, Value] = {}
    said = False
    while len(values) < len(tasks):
        try:
            key, value, error = ended.get(timeout=None if said else slow_seconds)
        except queue.Empty:
            said = True
            slow()
            continue
        if error is not None:
            raise error
        values[key] = value  # type: ignore[assignment]  # without an error it is the value
    return values


class Signals:
    """Ends waits on SIGINT and SIGTERM, whatever else they are made to do; in the main thread, the only one that sees them.

    Those that the process ignores, or dies of anyway, stay as they are.
    """

    def __init__(self) -> None:
        self._came: int | None = None
        self._waiting = self._watched = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Remember the signals that come; a wait that begins later within the context ends on them too."""
        if self._watched or threading.current_thread() is not threading.main_thread():
            yield
            return
        previous: dict[int, Any] = {number: handler for number in HEEDED if callable(handler := signal.getsignal(number))}

        def handle(number: int, frame: FrameType | None) -> None:
            self._came = number
            previous[number](number, frame)
            if self._waiting:
                self._end()

        self._came, self._watched = None, True
        try:
            for number in previous:
                signal.signal(number, handle)
            yield
        finally:
            self._watched = False
            for number, handler in previous.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Within the context the signals raise: SIGINT `KeyboardInterrupt`, SIGTERM `GmcError`."""
        with self.watched():
            self._waiting = True
            try:
                if self._watched and self._came is not None:
                    self._end()
                yield
            finally:
                self._waiting = False

    def _end(self) -> None:
        if self._came == signal.SIGINT:
            raise KeyboardInterrupt
        raise GmcError("stopped by SIGTERM while vLLM servers were waited for; what is stored is kept")
