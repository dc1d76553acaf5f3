"""Tables for a terminal of any width: words stay whole, and rows that cannot stand side by side stand below each other."""

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

WIDEST = 10_000
"""Columns of a terminal on which every table would fit."""


class FittingTable(Table):
    """A table whose title may be wider than its columns.

    Where the terminal is too narrow, columns of text give way as long as no word of theirs is cut. Where that is not enough,
    each row becomes a few lines, a column in each.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title, then columns or rows."""
        title, self.title = self.title, None
        asked = [column.width for column in self.columns]
        try:
            if title:
                yield Text(str(title), style="bold")
            ranges = [_range(console, options, column, header=self.show_header) for column in self.columns]
            self._fix([each.maximum for each in ranges])
            between = Measurement.get(console, options.update(max_width=WIDEST), self).maximum
            between -= sum(each.maximum for each in ranges)
            widths = _widths(ranges, options.max_width - between)
            if widths is None:
                yield from self._rows_as_lines()
                return
            self._fix(widths)
            yield from super().__rich_console__(console, options)
        finally:
            self.title = title
            self._fix(asked)

    def _fix(self, widths: Sequence[int | None]) -> None:
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width

    def _rows_as_lines(self) -> RenderResult:
        names = [" ".join(str(column.header).replace(".\n", ".").split()) for column in self.columns]
        width = max((len(name) for name in names), default=0)
        columns = [list(column.cells) for column in self.columns]
        for row in zip(*columns, strict=True):
            yield Text()
            for name, cell in zip(names, row, strict=True):
                value = " ".join(str(cell).split())
                if name or value:
                    yield Text(f"{name:<{width}}  {value}".rstrip())


def _range(console: Console, options: ConsoleOptions, column: Column, *, header: bool) -> Measurement:
    """How narrow and how wide a column may be, its padding left out: as its longest word, and as its longest line."""
    wide = options.update(max_width=WIDEST)
    cells = [*((column.header,) if header else ()), *column.cells]
    found = [Measurement.get(console, wide, cell) for cell in cells]
    most = max((each.maximum for each in found), default=0)
    return Measurement(most if column.no_wrap else max((each.minimum for each in found), default=0), most)


def _widths(ranges: Sequence[Measurement], room: int) -> list[int] | None:
    """The width of each column: what it would like, or less but no less than its longest word. None where that does not fit."""
    widths = [each.maximum for each in ranges]
    if sum(each.minimum for each in ranges) > room:
        return None
    while (excess := sum(widths) - room) > 0:
        slack = [width - each.minimum for width, each in zip(widths, ranges, strict=True)]
        widest = max(range(len(widths)), key=slack.__getitem__)
        widths[widest] -= min(excess, max(1, slack[widest] // 2))
    return widths


def new_table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> FittingTable:
    """An empty table in gmc's style: text columns on the left, number columns on the right."""
    table = FittingTable(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table
