"""Stopping between two updates on SIGTERM, SIGHUP or SIGINT, so that a checkpoint can be written."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class StopRequest:
    """Whether a signal has asked the loop to stop, and which."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the context the first of the signals sets the request; a second SIGINT interrupts at once.

    A signal that the process was told to ignore, as `nohup` does with SIGHUP, stays ignored.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.signal_name = signal.Signals(number).name

    heeded = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
