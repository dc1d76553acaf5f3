"""Standard streams as a long run needs them: none missing, none that can end it, and no one's escape sequences in them."""

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from typing import IO, Any

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters apart from tab and line feed (C0, DEL, C1), and those that reorder text: terminals obey them."""


def shown(text: str) -> str:
    r"""Text of unknown origin as it may go to a terminal: what would steer it is written out.

    >>> print(shown("\x1b[31mred"))
    \x1b[31mred
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class LastingStream:
    """Standard error that outlives its terminal: once a write fails, this and later messages go to a file.

    stream: None when the caller closed it. The file is named by `keep_messages`; until then such messages are lost.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream
        self._kept: Path | None = None
        self._broken = stream is None

    def keep_messages(self, path: Path) -> None:
        """From now on, what the stream does not take goes to the end of `path`."""
        self._kept = path

    def write(self, text: str) -> int:
        """Write, or keep the text in the file."""
        if not self._broken:
            try:
                return self._live().write(text)
            except (OSError, ValueError):
                self._broken = True
        self._keep(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        if not self._broken:
            try:
                self._live().flush()
            except (OSError, ValueError):
                self._broken = True

    def isatty(self) -> bool:
        """Whether a person looks on."""
        return not self._broken and self._live().isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live(), name)

    def _live(self) -> IO[str]:
        if self._stream is None:
            raise ValueError("standard error is closed")
        return self._stream

    def _keep(self, text: str) -> None:
        if self._kept is None:
            return
        with contextlib.suppress(OSError):  # no message may end a run
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            with open(self._kept, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)


def keep_messages(path: Path) -> None:
    """Have messages that standard error does not take any more go to the end of `path`."""
    if isinstance(sys.stderr, LastingStream):
        sys.stderr.keep_messages(path)


def prepare_streams() -> None:
    """Give the process all three streams, whatever its caller left open, and make standard error a lasting one.

    Closed descriptors are opened on the null device, so that no file of a run can get their numbers.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode still shows every formula
    if not isinstance(sys.stderr, LastingStream):
        sys.stderr = LastingStream(sys.stderr)
