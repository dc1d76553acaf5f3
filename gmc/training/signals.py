"""Stopping between two updates on SIGTERM or SIGINT, so that a checkpoint can be written."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Whether a signal has asked the loop to stop, and which."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the context the first SIGTERM or SIGINT sets the request; a second SIGINT interrupts at once."""
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.signal_name = signal.Signals(number).name

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
