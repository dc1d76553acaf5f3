"""`gmc lab exact`: exact bias, variance and direction of installed rules."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.cli.options import JsonOption, whole_numbers

FILE_HELP = "A study file of grid tables, in place of the options of a grid."


def exact(
    study: Annotated[Path | None, typer.Argument(help=FILE_HELP, show_default=False)] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator", help="NAME or NAME:KEY=VALUE. May be repeated. (default: all installed)", show_default=False
        ),
    ] = None,
    drift: Annotated[
        str | None, typer.Option("--drift", metavar="X,X,...", help="Distances from the behavior policy.", show_default="1,2,4")
    ] = None,
    group_size: Annotated[
        str | None, typer.Option("--group-size", metavar="N,N,...", help="Responses a group.", show_default="8")
    ] = None,
    direction: Annotated[
        str | None, typer.Option("--direction", help="Where the policy went: uphill or random.", show_default="uphill")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Results, one JSON line a cell; the same command goes on with it.", show_default=False),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the table as CSV.", show_default=False)] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw into this .png or .svg.", show_default=False)] = None,
    json: JsonOption = False,
) -> None:
    """Exact bias, variance, direction and quality of rules in a model so small that every group of responses is summed over.

    Any installed rule of token, sequence or group scope; rules that look at the whole batch, or act on the accumulated gradient
    or the learning rate, are refused with the reason.
    """
    from gmc.config.file_kinds import EXACT

    require_askable(EXACT, study, estimator, plot)  # before torch is loaded
    from rich.console import Console

    from gmc.cli.output import print_json, write_line
    from gmc.cli.progress import progress_bar
    from gmc.lab.exact.grid import KEYS, count_pairs, run_grid
    from gmc.lab.exact.report import MEANING, moment_tables, save_csv, save_pictures
    from gmc.lab.study_file import ResultLines

    options = {"estimator": estimator, "drift": drift, "group_size": group_size, "direction": direction}
    plans, refused = _plans(study, {name: value for name, value in options.items() if value})
    lines = ResultLines(out, KEYS)
    by_grid: list[list[dict[str, Any]]] = []
    counts = [count_pairs(grid, arms, lines) for grid, arms in plans]
    total, done = (sum(each) for each in zip(*counts, strict=True))
    with progress_bar("exact", total, "pairs", done=done) as bar:
        for grid, arms in plans:
            found, failed = run_grid(grid, arms, lines, bar.advance)
            by_grid.append(found)
            refused |= failed
    records = [record for found in by_grid for record in found]
    if csv is not None:
        save_csv(csv, records)
    if plot is not None:
        save_pictures(plot, by_grid)
    if json:
        print_json({"cells": records, "refused": refused})
    else:
        Console(highlight=False).print(*moment_tables(records), sep="\n")
        write_line(MEANING)
    for label, reason in refused.items():
        write_line(f"not measured: {label}: {reason}")


def require_askable(command: str, study: Path | None, estimators: list[str] | None, plot: Path | None) -> None:
    """Refuse what needs no torch to be refused: a study that is none, a rule that is not there, a picture of another kind."""
    from gmc.estimators.names import require_estimators
    from gmc.lab.study_file import read_tables
    from gmc.simulator.plots import check_plot_path

    require_estimators(estimators or ())
    for table in [] if study is None else read_tables(study, command):
        if isinstance(table, dict) and isinstance(rules := table.get("rules"), dict):
            require_estimators(rules)
    if plot is not None:
        check_plot_path(plot)


def _plans(study: Path | None, options: dict[str, Any]) -> tuple[list[tuple[Any, list[Any]]], dict[str, str]]:
    """Each grid with its arms, and why the other rules have none. A rule that was asked for by name must have exact moments."""
    from gmc.errors import UsageError
    from gmc.lab.arms import Arm, require_unique
    from gmc.lab.exact.grid import ExactGrid, measurable
    from gmc.lab.study_file import make_grid, read_grids

    if study is not None:
        if options:
            raise UsageError(
                f"gmc lab exact {study}: the study says the grid; leave out --{next(iter(options)).replace('_', '-')}"
            )
        grids = read_grids(study, ExactGrid)
        plans = [(grid, *measurable(grid.arms, strict=bool(grid.rules))) for grid in grids]
        return [(grid, arms) for grid, arms, _ in plans], {
            label: why for *_, refused in plans for label, why in refused.items()
        }
    grid = make_grid(_table(options), ExactGrid, "gmc lab exact")
    named = [Arm.parse(text) for text in options.get("estimator", [])]
    require_unique(named)
    arms, refused = measurable(named or grid.arms, strict=bool(named))
    return [(grid, arms)], refused


def _table(options: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if "drift" in options:
        table["drifts"] = numbers("--drift", options["drift"])
    if "group_size" in options:
        table["group_sizes"] = whole_numbers("--group-size", options["group_size"], least=2)
    if "direction" in options:
        table["directions"] = [options["direction"]]
    return table


def numbers(flag: str, text: str) -> list[float]:
    """The numbers of a list such as 0.5,1,2. Raises `UsageError` for anything else."""
    from gmc.errors import UsageError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{flag} {text}: write numbers separated by commas, such as 0.5,1,2") from error
