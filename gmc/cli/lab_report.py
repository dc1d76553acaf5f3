"""`gmc lab report`: what a sweep or any training runs come to, as a page and as tables."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from gmc.cli import options


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Results files, folders of sweeps, runs, or folders of runs.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for report.html, report.md, plots (SVG) and tables (CSV, LaTeX).")
    ] = Path("report"),
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="Arm to compare with. (default: the study's, else the first)", show_default=False),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Tables, plots and paired comparisons over seeds: one HTML page, Markdown, CSV and LaTeX."""
    from gmc.errors import UsageError

    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    from gmc.cli.output import print_json, write_line
    from gmc.lab.report import make_report, write_report

    made = make_report(paths, baseline)
    files = write_report(made, out)
    for note in made.found.notes:
        write_line(note)
    for run in made.found.unevaluated:
        write_line(f"gmc eval --run {shlex.quote(str(run))} --policy all")
    for each in made.compared:
        scale, unit = (100, "points") if made.found.binary else (1, "of reward")
        reach = " (no interval)" if each.paired.reach is None else f" ± {scale * each.paired.reach:.3g}"
        corrected = "" if each.holm is None else f", p {each.holm:.2g} by Holm over {len(made.compared)}"
        where = f" at {each.first.context}" if each.first.context else ""
        write_line(
            f"{each.second.name} − {each.first.name}{where}, {each.measure}: {scale * each.paired.mean:+.3g}{reach} {unit}, "
            f"{each.paired.seeds} seeds{corrected}"
        )
    write_line(f"{files[0]} and {len(files) - 1} files beside it")
    if json:
        print_json({**made.record(), "files": [str(file) for file in files]})
