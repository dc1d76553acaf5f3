"""`gmc eval arms`: several runs side by side, over seeds."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli import options


def arms(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; those that differ in the seed alone are one arm.")],
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the arms' rewards over updates into this .png or .svg.")
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Compare arms of an experiment over training seeds: scores with intervals, and differences paired by seed."""
    from gmc.store.run_directory import RunDirectory

    for run in runs:
        RunDirectory.open(run)
    from gmc.cli.output import print_json, stderr, write_line
    from gmc.evaluation.arms import group_by_arm, read_trained_runs
    from gmc.evaluation.arms_report import arm_tables, arms_record, dash_lines, differences_record, missing_lines, save_curves
    from gmc.simulator.plots import check_plot_path

    if plot is not None:
        check_plot_path(plot)
    trained, untrained = read_trained_runs(runs)
    for run in untrained:
        write_line(f"{run}: left out, no update was made there")
    found = group_by_arm(trained)
    tables = arm_tables(found)
    for table in tables:
        stderr.print(table)
    for line in [*dash_lines(tables), *missing_lines(found)]:
        write_line(line)
    if plot is not None:
        save_curves(plot, found)
        write_line(f"curves in {plot}")
    if json:
        print_json(
            {"arms": arms_record(found), "differences": differences_record(found), "plot": None if plot is None else str(plot)}
        )
