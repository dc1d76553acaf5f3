"""Tables for a terminal of any width: words stay whole, and rows that cannot stand side by side stand below each other."""

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


class FittingTable(Table):
    """A table whose title may be wider than its columns.

    Where the terminal is too narrow, columns of text give way as long as no word of theirs is cut. Where that is not enough,
    each row becomes a few lines, a column in each.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title, then columns or rows."""
        title, self.title = self.title, None
        before = [column.width for column in self.columns]
        try:
            if title:
                yield Text(str(title), style="bold")
            found = [(column.no_wrap, self._measure_column(console, options, column)) for column in self.columns]
            ranges = [each._replace(minimum=each.maximum) if whole else each for whole, each in found]
            widths = _widths(ranges, options.max_width - self._extra_width)
            if widths is None:
                yield from self._rows_as_lines()
                return
            paddings = [self._get_padding_width(number) for number in range(len(self.columns))]
            for column, width, padding in zip(self.columns, widths, paddings, strict=True):
                column.width = width - padding
            yield from super().__rich_console__(console, options)
        finally:
            self.title = title
            for column, asked in zip(self.columns, before, strict=True):
                column.width = asked

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
