"""A report: read, computed once, written as HTML, Markdown, CSV and LaTeX. What `gmc lab report` does."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gmc.errors import UsageError
from gmc.lab.report_contents import provenance, tables_of
from gmc.lab.report_input import ReportInput, read_input
from gmc.lab.report_numbers import Difference, differences
from gmc.lab.report_page import page
from gmc.lab.report_plots import Plot, plots_of
from gmc.lab.report_tables import Table
from gmc.store.files import write_text


@dataclass(frozen=True)
class Report:
    """Everything computed, nothing written."""

    found: ReportInput
    compared: list[Difference]
    tables: list[Table]
    provenance: list[tuple[str, str]]

    def plots(self) -> list[Plot]:
        """Drawn when asked for: this takes the most time."""
        return plots_of(self.found, self.compared)

    def markdown(self, plots: Sequence[Plot] = ()) -> str:
        """Title, notes, tables, links to the files of the plots, and provenance."""
        found = self.found
        lines = [f"# {found.title}", "", *([found.question, ""] if found.question else [])]
        lines += [line for note in found.notes for line in (f"> {note}", "")]
        lines += [table.markdown() for table in self.tables]
        lines += [line for plot in plots for line in (f"![{plot.title}]({plot.name}.svg)", "", plot.how, "")]
        lines += ["## Provenance", "", *(f"- {name}: {text}" for name, text in self.provenance), ""]
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """The comparisons as plain values, for `--json`."""
        return {
            "title": self.found.title,
            "comparisons": [
                {
                    "first": each.first.name,
                    "second": each.second.name,
                    "setting": each.first.context,
                    "measure": each.measure,
                    **vars(each.paired),
                    "holm": each.holm,
                    "ahead": each.ahead,
                }
                for each in self.compared
            ],
            "provenance": dict(self.provenance),
        }


def make_report(paths: Sequence[Path], baseline: str | None = None) -> Report:
    """Read and compute. Arguments and errors as for `read_input`; `UsageError` where nothing is recorded yet, too."""
    found = read_input(paths, baseline)
    if not found.records and not found.tuned:
        raise UsageError(f"{', '.join(map(str, paths))}: no run is recorded there yet; the same gmc lab sweep goes on")
    compared = differences(found)
    return Report(found, compared, tables_of(found, compared), provenance(found, compared))


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.html, report.md, NAME.svg for each plot, NAME.csv and NAME.tex for each table; returns the files."""
    plots = report.plots()
    contents = {"report.html": page(report.found, report.tables, plots, report.provenance)}
    contents["report.md"] = report.markdown(plots)
    on_white = '<svg style="background: white" '  # the page draws its own ground, a file lies on any
    contents |= {f"{plot.name}.svg": plot.svg.replace("<svg ", on_white, 1) for plot in plots}
    for table in report.tables:
        contents |= {f"{table.name}.csv": table.csv(), f"{table.name}.tex": table.latex()}
    for name, text in contents.items():
        write_text(folder / name, text)
    return [folder / name for name in contents]
