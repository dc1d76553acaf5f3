"""Tables of a report, each as Markdown, CSV, LaTeX and HTML of the same cells."""

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass

from gmc.lab.report_numbers import Over

Cell = str | int | float | Over | None
PERCENT, POINTS, NUMBER, TEXT = "percent", "points", "number", "text"
_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "$": r"\$",
          "±": r"$\pm$", "−": "$-$", "ε": r"$\varepsilon$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """kind: percent (a share, shown times 100), points (a difference of shares, the same), number or text."""

    name: str
    kind: str = TEXT


@dataclass(frozen=True)
class Table:
    """name: of its files; note: how to read it."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str

    def texts(self) -> list[list[str]]:
        """Every row as a person reads it."""
        return [[cell_text(cell, column.kind) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]

    def markdown(self) -> str:
        """A pipe table below its title, with the note."""
        lines = [
            _pipes([_heading(column) for column in self.columns]),
            _pipes(["---" if column.kind == TEXT else "---:" for column in self.columns]),
            *(_pipes([text.replace("|", "\\|") for text in row]) for row in self.texts()),
        ]
        return "\n".join([f"## {self.title}", "", *lines, "", self.note, ""])

    def csv(self) -> str:
        """Full precision, as shares and not percent; an interval's half width has a column of its own behind its mean."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        spread = [any(isinstance(row[place], Over) for row in self.rows) for place in range(len(self.columns))]
        names = [
            name
            for column, wide in zip(self.columns, spread, strict=True)
            for name in ([column.name, f"{column.name} ±", f"{column.name} runs"] if wide else [column.name])
        ]
        writer.writerow(names)
        for row in self.rows:
            writer.writerow([value for cell, wide in zip(row, spread, strict=True) for value in _plain(cell, wide)])
        return out.getvalue()

    def latex(self) -> str:
        """A tabular for booktabs."""
        kinds = "".join("l" if column.kind == TEXT else "r" for column in self.columns)
        rows = [[_heading(column) for column in self.columns], *self.texts()]
        head, *body = [" & ".join(map(_escape, row)) + r" \\" for row in rows]
        return "\n".join(
            [f"% {self.title}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule",
             r"\end{tabular}", ""]
        )  # fmt: skip

    def html(self) -> str:
        """A table that scrolls by itself on a narrow screen."""
        head = "".join(f"<th class={column.kind}>{html.escape(_heading(column))}</th>" for column in self.columns)
        kinds = [column.kind for column in self.columns]
        body = "".join(
            "<tr>" + "".join(f"<td class={kind}>{html.escape(t)}</td>" for t, kind in zip(row, kinds, strict=True)) + "</tr>\n"
            for row in self.texts()
        )
        return (
            f'<section id="{self.name}"><h2>{html.escape(self.title)}</h2><div class="scroll" tabindex="0"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div><p>{html.escape(self.note)}</p></section>"
        )


def _heading(column: Column) -> str:
    return f"{column.name}, %" if column.kind == PERCENT else column.name


def cell_text(cell: Cell, kind: str) -> str:
    """A cell as a person reads it."""
    if cell is None:
        return "–"
    if isinstance(cell, Over):
        mean = cell_text(cell.mean, kind)
        if cell.reach is None:
            return mean if cell.runs == 1 else f"{mean} ± –"
        return f"{mean} ± {cell_text(cell.reach, kind)}"
    if isinstance(cell, str) or kind == TEXT:
        return str(cell)
    return f"{100 * cell:.1f}".replace("-", "−") if kind in (PERCENT, POINTS) else f"{cell:.3g}".replace("-", "−")


def _plain(cell: Cell, wide: bool) -> list[str | float]:
    if isinstance(cell, Over):
        return [cell.mean, "" if cell.reach is None else cell.reach, cell.runs]
    return ["" if cell is None else cell, *(["", ""] if wide else [])]


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
