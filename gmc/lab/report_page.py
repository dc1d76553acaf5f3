"""The report as one self-contained HTML page: nothing is loaded from elsewhere, and it reads on a phone."""

import html
from collections.abc import Sequence
from dataclasses import replace

from gmc.lab.report_input import ReportInput
from gmc.lab.report_plots import Plot
from gmc.lab.report_tables import Table

SETTING = "setting"
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; color: #1a1a1a; }
h1 { margin: 0 0 .2rem; line-height: 1.2; } h2 { margin: 2rem 0 .5rem; font-size: 1.25rem; }
.question { font-size: 1.1rem; margin: 0 0 1rem; } .note { background: #fff4d6; padding: .5rem .8rem; border-radius: .3rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; } figure svg { width: 100%; height: auto; max-width: 34rem; }
figure h3 { margin: 0 0 .3rem; font-size: 1.05rem; }
figcaption, section > p { color: #444; font-size: .92rem; margin: .3rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
th { border-bottom: 2px solid #888; } .percent, .points, .number { text-align: right; }
.scroll td:first-child, .scroll th:first-child { position: sticky; left: 0; background: #fff; }
dt { font-weight: 600; margin-top: .5rem; } dd { margin: 0; overflow-wrap: anywhere; }
nav a { margin-right: 1rem; }
"""


def page(found: ReportInput, tables: Sequence[Table], plots: Sequence[Plot], provenance: Sequence[tuple[str, str]]) -> str:
    """The whole page."""
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in found.notes)
    tables = [_without_shared(table) for table in tables]
    links = [f'<a href="#{table.name}">{html.escape(table.title)}</a>' for table in tables]
    links.insert(2, '<a href="#plots">Plots</a>')  # in the order of the page
    question = f'<p class="question">{html.escape(found.question)}</p>' if found.question else ""
    figures = "".join(map(_figure, plots))
    facts = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in provenance)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(found.title)}: report of gmc lab</title><style>{STYLE}</style></head><body>
<h1>{html.escape(found.title)}</h1>{question}{notes}
<nav>{"".join(links)}<a href="#provenance">Provenance</a></nav>
{"".join(table.html() for table in tables[:2])}
<section id="plots"><h2>Plots</h2><div class="plots">{figures}</div></section>
{"".join(table.html() for table in tables[2:])}
<section id="provenance"><h2>Provenance</h2><dl>{facts}</dl></section>
</body></html>
"""


def _without_shared(table: Table) -> Table:
    """A column of settings that is the same in every row becomes a sentence: on a phone it pushes the numbers out of sight."""
    places = [place for place, column in enumerate(table.columns) if column.name == SETTING]
    values = {str(row[place]) for row in table.rows for place in places}
    if len(places) != 1 or len(values) != 1:
        return table
    place, (value,) = places[0], values
    columns = [column for number, column in enumerate(table.columns) if number != place]
    rows = [[cell for number, cell in enumerate(row) if number != place] for row in table.rows]
    return replace(table, columns=columns, rows=rows, note=f"{value and f'All at {value}. '}{table.note}")


def _figure(plot: Plot) -> str:
    title = html.escape(plot.title)
    svg = plot.svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    return (
        f'<figure id="{plot.name}"><h3>{title}</h3>{svg}'
        f"<figcaption><strong>How to read this.</strong> {html.escape(plot.how)}</figcaption></figure>"
    )
