"""Progress of long work: a bar with rate and ETA on a terminal, a plain line now and then elsewhere. Always on stderr."""

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from gmc.cli.output import QUIET, level, stderr, write_line

PLAIN_INTERVAL_SECONDS, REPEAT_SECONDS, LONG_SECONDS = 10.0, 60.0, 5.0
WIDE_TERMINAL = 120


def format_rate(rate: float) -> str:
    """Three digits, and more before the decimal point where there are more: 0.0555, 2.61, 12400."""
    return f"{rate:.0f}" if rate >= 1000 else f"{rate:.3g}"


class _TwoLines(Progress):
    """A bar whose note stands on a line of its own, where the terminal is too narrow for both."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, then the note of each."""
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(f"  {fitting(task.fields['note'], self.console.width - 2)}", no_wrap=True)


def fitting(note: str, width: int) -> str:
    """As many of a note's parts, which two spaces set apart, as fit into a line: no part is cut.

    >>> fitting("2.5 updates/s  reward 0.52  delay 64", 29)
    '2.5 updates/s  reward 0.52'
    """
    parts = note.split("  ")
    while len(parts) > 1 and len("  ".join(parts)) > width:
        parts.pop()
    return "  ".join(parts)


class Bar:
    """One piece of long work with a known total. `advance` may be called as often as wanted."""

    def __init__(self, name: str, total: int, unit: str, progress: Progress | None, done: int) -> None:
        self._name, self._total, self._unit, self._progress = name, total, unit, progress
        self._started_at = self._said_at = time.monotonic()
        self._initial = self._done = done
        self._said = -1
        self._task = progress.add_task(name, total=total, completed=done, note="") if progress else None

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count more units as done; `note` is shown behind the rate."""
        self._done += count
        now = time.monotonic()
        rate = (self._done - self._initial) / max(now - self._started_at, 1e-9)
        text = f"{format_rate(rate)} {self._unit}/s  {note}" if rate else note
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._done, note=text)
        elif now - self._said_at > PLAIN_INTERVAL_SECONDS or (self._done >= self._total and self._said != self._done):
            eta = f"  ETA {(self._total - self._done) / rate:.0f} s" if rate else ""
            write_line(f"{self._name} {self._done}/{self._total}  {text}{eta}")
            self._said_at, self._said = now, self._done


@contextmanager
def progress_bar(name: str, total: int, unit: str, *, done: int = 0) -> Iterator[Bar]:
    """A `Bar` that lives as long as the context. On a terminal it is drawn in place; elsewhere it prints plain lines."""
    if not stderr.is_terminal or level() >= QUIET:
        yield Bar(name, total, unit, None, done)
        return
    # Count, times and ETA keep their width; on a narrow terminal the note gets a line of its own, and the bar goes.
    wide = stderr.width >= WIDE_TERMINAL
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=len(name))),
        *((BarColumn(bar_width=20),) if wide else ()),
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=2 * len(str(total)) + 1)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("ETA", table_column=Column(no_wrap=True, min_width=3)),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        *(
            (TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),)
            if wide
            else ()
        ),
    )
    with (Progress if wide else _TwoLines)(*columns, console=stderr, expand=wide) as progress:
        yield Bar(name, total, unit, progress, done)


class StatusLine:
    """What work without a known end has made, and what it does or waits for. May be called as often as wanted."""

    def __init__(self, name: str, progress: Progress | None) -> None:
        self._name, self._progress = name, progress
        self._task = progress.add_task(name, total=None, made="", note="") if progress else None
        self._state, self._since = "", 0.0
        self._said, self._said_at = "", -math.inf

    def __call__(self, made: str, state: str) -> None:
        """Show both. A state that is given again and again is shown with how long it has lasted."""
        now = time.monotonic()
        if state != self._state:
            self._state, self._since = state, now
        lasted = now - self._since
        note = f"{state} ({lasted:.0f} s)" if lasted >= LONG_SECONDS else state
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, made=made, note=note)
            return
        line = f"{state}  {made}"
        if now - self._said_at >= (PLAIN_INTERVAL_SECONDS if line != self._said else REPEAT_SECONDS):
            write_line("  ".join(part for part in (f"{self._name}: {note}", made) if part))
            self._said, self._said_at = line, now


@contextmanager
def status_line(name: str) -> Iterator[StatusLine]:
    """A `StatusLine` that lives as long as the context. On a terminal it is drawn in place; elsewhere it prints plain lines:
    one when anything has changed, but none sooner than ten seconds after another, and one a minute when nothing has."""
    if not stderr.is_terminal or level() >= QUIET:
        yield StatusLine(name, None)
        return
    wide = stderr.width >= WIDE_TERMINAL
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[made]}", markup=False, table_column=Column(no_wrap=True)),
        *((TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),) if wide else ()),
    )
    with (Progress if wide else _TwoLines)(*columns, console=stderr, expand=wide) as progress:
        yield StatusLine(name, progress)
