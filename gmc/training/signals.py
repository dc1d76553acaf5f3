"""Stopping between two updates on SIGTERM, SIGHUP or SIGINT, so that a checkpoint can be written."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class StopRequest:
    """Whether a signal has asked the loop to stop, and which."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    @property
    def by(self) -> str | None:
        """What stopped it, as a person knows it: Ctrl-C, or the signal's name."""
        return "Ctrl-C" if self.signal_name == signal.SIGINT.name else self.signal_name

    def __bool__(self) -> bool:
        return self.signal_name is not None


def interrupt(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C does: `KeyboardInterrupt`, as ever, but within an import the process dies by the signal at once.

    Libraries try an import and do without it, whatever it raises: they would swallow the interrupt and go on half loaded.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.signal(number, signal.SIG_DFL)
            if os.isatty(2):
                os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor
            os.kill(os.getpid(), number)
        frame = frame.f_back
    raise KeyboardInterrupt


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the context the first of the signals sets the request; a second SIGINT interrupts at once.

    A signal that the process was told to ignore, as `nohup` does with SIGHUP, stays ignored.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request and number == signal.SIGINT:
            interrupt(number, frame)
        request.signal_name = signal.Signals(number).name

    heeded = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
